"""Contracts of engines, providers, gates and journals, as classes of tests to subclass."""
