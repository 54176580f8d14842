"""One of each kind of plug-in, as a stranger would write them."""
