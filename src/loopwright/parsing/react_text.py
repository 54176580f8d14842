"""The parts of a reply in ReAct text: thoughts, actions, inputs, answers, and what the model made up by itself."""

import dataclasses

from .markers import Markers, Scan, value_of

WORDS = {
    "thought": "thought",
    "action": "action",
    "input": "action input",
    "answer": "final answer",
    "observation": "observation",
}
MARKERS = Markers(WORDS)
# A plan's executor may be told to end a step so; it is an answer where the reply has no other.
ALL_MARKERS = Markers({**WORDS, "result": "step result"})
NO_ACTION = {"none", "n/a"}
CUT_STOP_WORD = 4  # letters of "Observation" that a server may leave behind when it cuts at the stop sequence


@dataclasses.dataclass(frozen=True)
class Reading:
    """A reply up to its first self-written observation, and the markers in it."""

    text: str
    scan: Scan
    flags: tuple[str, ...]

    @property
    def decision(self) -> int | None:
        """The first marker that is an answer or an action; `Action: None` is none."""
        return next(
            (index for index in range(len(self.scan.marks)) if self._decides(index)),
            None,
        )

    def _decides(self, index: int) -> bool:
        kind = self.scan.marks[index].kind
        if kind == "action":
            return (
                self.value(index).partition("\n")[0].strip(" \r.").casefold()
                not in NO_ACTION
            )
        return kind in ("answer", "result")

    def with_results(self) -> "Reading":
        """The reply read again, with `Step result:` as a marker of an answer."""
        if "result" not in self.text.casefold():
            return self
        return dataclasses.replace(self, scan=ALL_MARKERS.scan(self.text))

    @property
    def thinks_only(self) -> bool:
        """Whether there are thoughts, at least one with its marker, and nothing else."""
        only = {mark.kind for mark in self.scan.marks} == {"thought"}
        return (
            only
            and not self.flags
            and self.scan.unread is None
            and self.thought(None) != ""
        )

    def value(self, index: int) -> str:
        """What stands between a marker and the next one."""
        return value_of(self.text, self.scan.marks, index)

    def goes_on_behind(self, index: int) -> bool:
        """Whether the reply went on behind the value of a marker, so that the value cannot have been cut short."""
        return index + 1 < len(self.scan.marks) or bool(self.flags)

    def decides_behind(self, index: int) -> bool:
        """Whether more actions or answers stand behind a marker."""
        return any(
            mark.kind in ("action", "answer", "result")
            for mark in self.scan.marks[index + 1 :]
        )

    def thought(self, index: int | None) -> str:
        """The text before a marker (all of it without one), without the words `Thought:`."""
        parts: list[str] = []
        position = 0
        for mark in self.scan.marks[:index]:
            if mark.kind == "thought":
                parts.append(self.text[position : mark.start].strip())
                position = mark.value
        end = len(self.text) if index is None else self.scan.marks[index].start
        parts.append(self.text[position:end].strip())
        return "\n".join(filter(None, parts))


def read_reply(text: str) -> Reading:
    """The part of `text` that is the model's to say: what comes after its own `Observation:` is cut off and flagged."""
    text = _without_cut_stop_word(text)
    scan = MARKERS.scan(text)
    for index, mark in enumerate(scan.marks):
        if mark.kind == "observation":
            return Reading(
                text[: mark.start], Scan(scan.marks[:index]), ("invented_observation",)
            )
    return Reading(text, scan, ())


def _without_cut_stop_word(text: str) -> str:
    body = text.rstrip()
    start = body.rfind("\n") + 1
    last = body[start:].strip(" \t*#").casefold()
    return (
        body[:start]
        if len(last) >= CUT_STOP_WORD and "observation".startswith(last)
        else text
    )
