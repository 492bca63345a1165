"""The gate: one command that says whether a change made koncord better or worse.

``make gate`` (or ``python -m gate quick | full``) measures accuracy, steadiness, speed, confidentiality and size of
this tree and prints them beside stored figures. No dealing and no seed of it may choose anything.
"""
