"""The state of a run at work."""
