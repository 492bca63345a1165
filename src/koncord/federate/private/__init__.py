"""Sites whose every message is differentially private: a budget for one run, and what a site answers within it."""

from koncord.federate.private.budget import Budget
from koncord.federate.private.client import Known, PrivateClient, check_private_form, private_client

__all__ = ["Budget", "Known", "PrivateClient", "check_private_form", "private_client"]
