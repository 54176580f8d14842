"""IssuedByRun: the base of values that only a run can make."""

from typing import Never, Self

from ..errors import PhaseError

HIDDEN_FIELDS = ("issuer", "tool", "unredacted", "entry")
"""Fields that no repr shows: `unredacted` holds withheld arguments."""


class IssuedByRun:
    """A value that only a run can make; making one by hand is an error, also for type checkers."""

    cure = "take it from the verb that returns it"

    def __new__(cls, *_: object, **__: object) -> Self:
        raise PhaseError(f"a {cls.__name__} cannot be made by hand: {cls.cure}")

    def __init__(  # pyright: ignore[reportInconsistentConstructor] - types refuse the call, and so does `__new__`
        self, only_a_run_makes_these: Never, /
    ) -> None:
        """For type checkers: there is no value to call this with."""

    @classmethod
    def issue(cls, **fields: object) -> Self:
        """Make one; a run accepts only those that it issued."""
        issued = object.__new__(cls)
        issued.__dict__.update(fields)
        return issued

    def __setattr__(self, name: str, value: object) -> None:
        raise PhaseError(
            f"a {type(self).__name__} is read-only: {name!r} cannot be set"
        )

    def __repr__(self) -> str:
        fields = (item for item in vars(self).items() if item[0] not in HIDDEN_FIELDS)
        shown = ", ".join(f"{name}={value!r}" for name, value in fields)
        return f"{type(self).__name__}({shown})"
