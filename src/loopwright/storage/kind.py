"""What a file is kept for: the nouns of its error texts, and the type of its errors."""

from .._internal import dataclasses
from ..errors import LoopwrightError


@dataclasses.dataclass(frozen=True)
class FileKind:
    """What a file holds.

    Args:
        noun: what errors call it, such as `journal`.
        owner: the class that a caller makes of its path.
        error: the type of its errors.
        alternative: what a caller uses to keep nothing.
        example: the name that such a file may have.
    """

    noun: str
    owner: str
    error: type[LoopwrightError]
    alternative: str
    example: str
