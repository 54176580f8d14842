"""SQLite files that outlive processes: private, checked, locked between processes, rewritten when rows are deleted."""
