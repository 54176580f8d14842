"""Infrastructure without a domain: lazy imports, typed options, the logger, the loop thread and the version."""
