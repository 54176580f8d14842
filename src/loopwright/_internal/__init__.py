"""Plumbing without a domain: lazy names, options, the log, the loop thread, the version."""
