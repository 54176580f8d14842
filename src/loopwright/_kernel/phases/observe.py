"""What a tool says on its way into a run: cleaned, without secrets, cut and labelled; and as a model reads it."""

import dataclasses
import functools

from ...events.effects import ToolFinished
from ...labels import Label, highest
from ...messages import Observation, ToolCall
from ...security.redaction.redactor import CUT_MARGIN
from ...security.spotlighting import spotlight, strip_control_characters
from ...tools.base import Tool
from ..session.session import Session


@dataclasses.dataclass(frozen=True)
class Said:
    """What a tool said: `cut` is how many characters it was, if that was too many; `label` how sensitive it is."""

    text: str
    cut: int = 0
    label: Label = "public"


def said(session: Session, tool: Tool, text: str) -> Said:
    """A tool's text, no longer than a model gets to read of it: valid Unicode, nothing hidden in it, without secrets.

    It is labelled as it came, and cleaned before secrets are looked for: one that is torn apart by what nobody sees
    would not be found.
    """
    services = session.services
    most = tool.max_output_chars or services.limits.max_output_chars
    begin = (
        text if most is None else text[: most + CUT_MARGIN]
    )  # a secret that goes on behind the cut is seen whole
    plain = begin.encode("utf-8", "replace").decode()  # half pairs cannot be stored
    plain = plain if tool.trusted else strip_control_characters(plain)
    label = highest((tool.label, session.sensitivity.classify(plain)))
    clean = session.secrets.redactor.redact_text(plain)
    if most is None or len(text) <= most:
        return Said(clean, label=label)
    whole = len(begin) == len(text)
    return Said(
        clean[:most] if whole else clean[: min(most, max(len(clean) - CUT_MARGIN, 0))],
        len(text),
        label,
    )


def marked(session: Session, source: str, text: str, cut: int = 0) -> str:
    """A text from outside as a model reads it, with a note if it was cut from so many characters."""
    told = spotlight(text, source=source, delimiter=session.delimiter)
    return (
        f"{told}\n[cut: {cut} characters, the first {len(text)} shown]" if cut else told
    )


def observation_of(
    session: Session, call: ToolCall, finished: ToolFinished
) -> Observation:
    """What came of a call as engines and models see it; what is from outside is marked so."""
    if not finished.untrusted or finished.marked:
        note = (
            f"\n[cut: {finished.cut} characters, the first {len(finished.content)} shown]"
            if finished.cut
            else ""
        )
        return Observation(call, finished.status, finished.content + note)
    content = marked(session, finished.tool, finished.content, finished.cut)
    fence = functools.partial(
        spotlight, source=finished.tool, delimiter=session.delimiter
    )
    return Observation(call, finished.status, content, finished.content, fence)
