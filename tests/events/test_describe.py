"""Events describe themselves: what logs, traces and timelines show of an event is declared at its type."""

import dataclasses
from typing import Annotated

import pytest

from loopwright.events import EVENT_TYPES
from loopwright.events.describe import (
    CONTENT,
    TOOL,
    DescribedEvent,
    Exposure,
    fields_of,
    format_call,
    kind_of,
    public,
)
from loopwright.events.entry import KINDS
from loopwright.messages import Usage
from loopwright.observers.semconv import event_attributes, metric_attributes


@dataclasses.dataclass(frozen=True)
class ParcelSent(DescribedEvent, level="info"):
    """An event that no observer knows."""

    tool: Annotated[str, TOOL]
    weight: Annotated[float, public("parcel.weight")]
    address: Annotated[str, Exposure("content", "parcel.address")]
    note: Annotated[str, CONTENT]
    secret_digest: str = ""


PARCEL = ParcelSent("post", 1.5, "12 High Street", "fragile", "ab12")


def test_a_new_event_is_named_labelled_and_summarized_by_its_type() -> None:
    assert (kind_of(ParcelSent), PARCEL.heading, PARCEL.level) == (
        "parcel_sent",
        "parcel sent",
        "info",
    )
    assert PARCEL.summary() == (
        'tool="post", weight=1.5, address="12 High Street", note="fragile"'
    )
    assert PARCEL.lines() == [("parcel sent", PARCEL.summary())]


def test_a_trace_shows_content_only_where_it_is_asked_for() -> None:
    plain = {"gen_ai.tool.name": "post", "parcel.weight": 1.5}

    assert event_attributes(PARCEL, content=False) == plain
    assert event_attributes(PARCEL, content=True) == {
        **plain,
        "parcel.address": "12 High Street",
    }
    assert metric_attributes(PARCEL, tool="") == {"gen_ai.tool.name": "post"}


def test_a_field_without_an_exposure_is_shown_nowhere() -> None:
    assert "secret_digest" not in [field.name for field in fields_of(ParcelSent)]


@pytest.mark.parametrize("event_type", EVENT_TYPES.values(), ids=EVENT_TYPES)
def test_every_event_declares_fields_that_it_has(event_type: type) -> None:
    own = {field.name for field in dataclasses.fields(event_type)}

    for field in fields_of(event_type):
        assert field.name in own | set(event_type.derived)
        assert hasattr(event_type, field.name) or field.name in own
    assert KINDS[event_type] == event_type.kind


def test_kinds_in_journals_are_those_of_the_first_release() -> None:
    from loopwright.events import UnknownOutcomeResolved

    assert KINDS[UnknownOutcomeResolved] == "doubt_resolved"


def test_usage_that_is_not_known_is_left_out() -> None:
    from loopwright.events.describe import format_spending

    assert format_spending(Usage(), 1, 2) == "1 model call, 2 tool calls"
    assert (
        format_spending(Usage(120, None, estimated=True, cost=0.0012), 2, 1)
        == "2 model calls, 1 tool call, about 120 + 0 tokens, cost 0.0012"
    )


def test_a_call_is_in_the_notation_of_code() -> None:
    assert format_call("add", {"a": 1, "b c": "x"}) == 'add(a=1, "b c"="x")'
