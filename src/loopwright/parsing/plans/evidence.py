"""Plans of ReWOO: `Plan: …` and `#E1 = Search[x]` (arXiv:2305.18323)."""

import re

from .drafts import CALL, CallReader, Draft

_LABEL = re.compile(
    r"(?:^|(?<=[\s*`]))(?:#E(?P<id>\d{1,4}+)|E(?P<bare>\d{1,4}+))[*`]*+[ \t]*+=(?!=)[ \t]*+",
    re.MULTILINE,
)
_BARE_LABEL = re.compile(r"(?<![\w#$])E(\d{1,4}+)\b")
_PLAN = re.compile(
    r"^[ \t]*+(?:\d{1,4}+[.)][ \t]*+)?+[*_#]*+[ \t]*+plan[ \t]*+#?\d{0,4}[*_]*+:[*_]*+",
    re.I | re.M,
)


def read_evidence_plan(text: str, calls: CallReader) -> list[Draft]:
    """Return the steps of a plan in ReWOO's form; none if there is no label such as `#E1 =` in the
    text.
    """
    labels = [label for label in _LABEL.finditer(text) if _is_label(label)]
    starts = [label.start() for label in labels]
    drafts: list[Draft] = []
    begin = 0
    for label, end in zip(labels, [*starts[1:], len(text)], strict=False):
        draft = Draft(
            int(label["id"] or label["bare"]),
            _read_label_value(text, label, end).rstrip("*`"),
        )
        calls.read_evidence(draft)
        goal = _read_goal(text, begin, label.start())
        draft.goal = (goal or draft.goal) if draft.tool else ""
        drafts.append(draft)
        begin = label.end()
    return drafts


def _is_label(label: re.Match[str]) -> bool:
    """Return whether a match is a label; `E1 =` without `#` is one only before a call."""
    if label["id"]:
        return True
    return CALL.match(label.string, label.end()) is not None


def _read_goal(text: str, begin: int, end: int) -> str:
    """Return the last `Plan: …` of a stretch of text in one line, or an empty text."""
    plans = list(_PLAN.finditer(text, begin, end))
    return " ".join(text[plans[-1].end() : end].split()) if plans else ""


def _read_label_value(text: str, label: re.Match[str], end: int) -> str:
    """Return the text between a label and the next plan or label."""
    next_plan = _PLAN.search(text, label.end(), end)
    value_end = end if next_plan is None else next_plan.start()
    value = text[label.end() : value_end].strip()
    return _BARE_LABEL.sub(r"#E\1", value) if label["bare"] else value
