"""A gate that decides by where the values of a call come from."""
