"""The event of a hook that did something."""

from typing import Annotated, Any, TypeAlias

from .._internal import dataclasses
from ..errors import Aborted, HookFailed, LoopwrightError
from ..labels import Label
from ..messages import Json
from .describe import CONTENT, DescribedEvent, Level, drop_defaults, public
from .run import ErrorRecord


@dataclasses.dataclass(frozen=True)
class HookRan(DescribedEvent, heading="hook"):
    """A hook changed something, failed, ended the run, or took over 5 ms; one that did nothing leaves no entry.

    `changed` is what it changed: the `text`, or of a model call its `provider`, `tools` and `sampling`, and the `messages`
    that it added (journals of before have only their number). `state` is what the hook keeps from now on in this scope.
    `ended` says that the run ended by it. `label` is that of the texts, and `seconds` is how long it took.
    """

    hook: Annotated[str, public("loopwright.hook")]
    stage: Annotated[str, public("loopwright.hook_stage")]
    changed: Annotated[Json, CONTENT] = None
    error: Annotated[ErrorRecord | None, CONTENT] = None
    seconds: Annotated[float, public("loopwright.seconds")] = 0.0
    state: Annotated[Json, CONTENT] = None
    ended: bool = False
    label: Label = "public"

    @property
    def text(self) -> str | None:
        """Return the text as the hook left it, if it changed one."""
        changed = self.changed if isinstance(self.changed, dict) else {}
        text = changed.get("text")
        return text if isinstance(text, str) else None

    @property
    def texts(self) -> list[str]:
        """Return all texts that a model reads as the hook left or wrote them."""
        changed = self.changed if isinstance(self.changed, dict) else {}
        written = changed.get("messages")
        messages = written if isinstance(written, list) else []
        return [str(one) for one in (self.text, *messages) if one is not None]

    def build_ending(self) -> LoopwrightError:
        """Return the error with which the run ended by it."""
        error = self.error
        if error is not None and error.type == "Abort":
            return Aborted(f"hook {self.hook}: {error.message}")
        why = "" if error is None else error.summary()
        return HookFailed(f"hook {self.hook} {self.stage}: {why}")

    def to_stored(self) -> Any:
        """Return it without fields that hold their defaults."""
        return drop_defaults(self)

    @property
    def level(self) -> Level:
        return "debug" if self.error is None else "warning"

    def summary(self) -> str:
        done = "looked" if self.changed is None else "changed something"
        if self.error is not None:
            done = self.error.summary()
        return f"{self.hook} {self.stage}: {done}"


HookEvent: TypeAlias = HookRan
