"""How much the fault tests do: a share that fits a pull request, or, with LOOPWRIGHT_FAULTS=long, a night's work."""

import os

LONG = os.environ.get("LOOPWRIGHT_FAULTS") == "long"
_FIGURES = os.environ.get(
    "LOOPWRIGHT_FIGURES"
)  # read here, since the suite takes such variables away from its tests


def sized(short: int, long: int) -> int:
    """The number for this run."""
    return long if LONG else short


def figure(name: str, text: str) -> None:
    """Note what a fault test measured, for people: in the file that LOOPWRIGHT_FIGURES names, and on the screen."""
    print(f"{name}: {text}")
    if _FIGURES:
        with open(_FIGURES, "a") as file:
            file.write(f"{name}: {text}\n")
