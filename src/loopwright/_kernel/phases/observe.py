"""Prepare the text of a tool for a run (cleaned, without secrets, cut, labelled) and for its model."""

import functools

from ..._internal import dataclasses
from ...events.effects import ToolFinished
from ...journals.recorded_messages import add_cut_note, render_result
from ...labels import Label
from ...messages import Observation, ToolCall, mark_entry
from ...security.redaction.redactor import CUT_MARGIN
from ...security.spotlighting import spotlight, strip_control_characters
from ...tools.base import Tool
from ..session.failures import FAILED
from ..session.session import Session


@dataclasses.dataclass(frozen=True, slots=True)
class ToolText:
    """The text of a tool.

    `cut` is its whole length in characters, if it was cut; `label`, how sensitive it is.
    """

    text: str
    cut: int = 0
    label: Label = "public"


def is_trusted(tool: Tool | None) -> bool:
    """Whether the texts of a tool are trusted; those of one that is gone are not."""
    return tool is not None and tool.trusted


def clean_text(session: Session, tool: Tool, text: str) -> ToolText:
    """Return a tool's text as a run may hold it: valid, visible, redacted, and not too long.

    It is labelled as it arrived. Control characters are removed before secrets are looked
    for, since a secret that they split would not be found.
    """
    limit = tool.max_output_chars or session.services.limits.max_output_chars
    # A secret that continues behind the cut must be seen whole.
    start = text if limit is None else text[: limit + CUT_MARGIN]
    valid = start.encode("utf-8", "replace").decode()  # without lone surrogates
    visible = valid if tool.trusted else strip_control_characters(valid)
    label = session.sensitivity.classify(visible, tool.label)
    redacted = session.secrets.redactor.redact_text(visible)
    if limit is None or len(text) <= limit:
        return ToolText(redacted, label=label)
    shown = limit
    if len(start) < len(text):
        shown = min(limit, max(len(redacted) - CUT_MARGIN, 0))
    return ToolText(redacted[:shown], len(text), label)


def spotlight_text(session: Session, source: str, text: str, cut: int = 0) -> str:
    """Return a text from outside as a model reads it, with a note if it was cut."""
    shown = spotlight(text, source=source, delimiter=session.delimiter)
    return add_cut_note(shown, text, cut)


def observation_of(
    session: Session, call: ToolCall, finished: ToolFinished, key: str
) -> Observation:
    """Return the outcome of a call as engines and models see it; `key` is that of its entry."""
    if finished.status in FAILED:
        session.failures.note(key, finished)
    content, plain, show = render_result(finished, session.delimiter), None, None
    if finished.untrusted and not finished.marked:
        plain = finished.content
        show = functools.partial(
            spotlight, source=finished.tool, delimiter=session.delimiter
        )
    observation = Observation(
        call, finished.status, content, plain, show, finished.attachments, finished.label, finished.untrusted,
        finished.seconds, finished.cut, finished.failure,
    )  # fmt: skip
    mark_entry(observation, (session.run_id, key))
    return observation
