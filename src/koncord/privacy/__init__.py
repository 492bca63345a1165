"""What a site's privacy budget allows: the budget, its accounting, the noise."""

from koncord.privacy.budget import Budget

__all__ = ["Budget"]
