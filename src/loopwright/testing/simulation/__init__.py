"""Deterministic simulation: processes, a store, models, tools and people in one loop that a seed decides."""
