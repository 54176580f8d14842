"""The version of this library, as journals record it."""

__version__ = "0.1.0"
