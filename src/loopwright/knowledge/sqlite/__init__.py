"""Knowledge in a SQLite file."""
