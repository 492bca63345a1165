"""The commands that this distribution adds to koncord, each a module as those of `koncord.cli` are."""
