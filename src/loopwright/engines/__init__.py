"""The built-in strategies: one paper, one file."""
