"""Checks of the numbers that toolboxes take as options."""

from ..errors import ConfigError


def check_counts(**options: int) -> None:
    """Raise `ConfigError` for an option that is less than 1."""
    for field, value in options.items():
        if value < 1:
            raise ConfigError(f"{field}: must be 1 or more, got {value}")


def check_positive(**options: float) -> None:
    """Raise `ConfigError` for an option that is not greater than 0, such as NaN."""
    for field, value in options.items():
        if not value > 0:
            raise ConfigError(f"{field}: must be greater than 0, got {value!r}")
