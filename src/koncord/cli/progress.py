"""The progress bar of the commands."""

from koncord._bar import ProgressBar

__all__ = ["ProgressBar"]
