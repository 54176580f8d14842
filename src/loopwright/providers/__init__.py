"""Models: one file for each kind of endpoint, over one transport."""
