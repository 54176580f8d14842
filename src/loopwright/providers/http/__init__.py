"""HTTP for providers."""
