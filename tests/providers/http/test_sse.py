"""Server-sent events: whatever the cuts and the line ends, the same events come out."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.providers.http import sse
from loopwright.providers.http.sse import EventReader, ServerEvent


def events(*chunks: bytes) -> list[ServerEvent]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)]


def said(*texts: str) -> list[ServerEvent]:
    return [ServerEvent("message", text) for text in texts]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: one\n\ndata: two\n\n", said("one", "two")),
        (b"data:one\n\n", said("one")),
        (b"data:  one\n\n", said(" one")),
        (b"data: one\ndata: two\n\n", said("one\ntwo")),
        (b"data\ndata:\n\n", said("\n")),
        (b"data:\n\n", said("")),
        (b": a comment\n\n:\n\ndata: one\n: another\n\n", said("one")),
        (
            b"event: ping\ndata: {}\n\ndata: x\n\n",
            [ServerEvent("ping", "{}"), *said("x")],
        ),
        (b"event: ping\n\ndata: x\n\n", said("x")),
        (b"event: a\nevent: b\ndata: x\n\n", [ServerEvent("b", "x")]),
        (b"event: a\nevent\ndata: x\n\n", said("x")),
        (
            b"id: 7\nretry: 10\nfoo: bar\nData: no\n data: no\ndata: yes\n\n",
            said("yes"),
        ),
        (b"\n\n\ndata: one\n\n\n\n", said("one")),
        (b"\xef\xbb\xbfdata: one\n\n\xef\xbb\xbfdata: two\n\n", said("one")),
        (b"data: \xef\xbb\xbfone\n\n", said("\ufeffone")),
        (b"data: a\xc3\n\ndata: \xf0\x9f\x98\xff\n\n", said("a\ufffd", "\ufffd\ufffd")),
        (
            b"data: a\x0bb\x0cc\x1cd\xc2\x85e\xe2\x80\xa8f\n\n",
            said("a\x0bb\x0cc\x1cd\x85e\u2028f"),
        ),
        (
            b"data: one\r\rdata: two\r\n\r\ndata: three\n\r\n",
            said("one", "two", "three"),
        ),
        (b"data: one\n", []),
        (b"data: one\n\ndata: cut", said("one")),
    ],
)
def test_a_stream_is_read_the_same_whole_and_byte_by_byte(
    stream: bytes, expected: list[ServerEvent]
) -> None:
    assert events(stream) == expected
    assert events(*(bytes([byte]) for byte in stream)) == expected
    for place in range(len(stream)):
        assert events(stream[:place], b"", stream[place:]) == expected


def test_event_is_returned_as_soon_as_its_blank_line_arrives() -> None:
    reader = EventReader()

    assert reader.feed(b"data: one\r\n\r") == said("one")
    assert reader.feed(b"\ndata: two\r") == []
    assert reader.feed(b"\r") == said("two")


@given(
    st.lists(
        st.sampled_from(
            [
                b"data",
                b":",
                b" ",
                b"x",
                b"event",
                b"\r",
                b"\n",
                b"\r\n",
                b"\xef\xbb\xbf",
                b"\xe2",
            ]
        )
    ),
    st.lists(st.integers(1, 7)),
)
def test_cuts_change_nothing(pieces: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(pieces)
    chunks, place = [], 0
    for size in sizes:
        chunks.append(stream[place : place + size])
        place += size

    assert events(*chunks, stream[place:]) == events(stream)


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n")),
        min_size=1,
    )
)
def test_any_lines_come_back_as_they_were_sent(lines: list[str]) -> None:
    assert events(
        "".join(f"data: {line}\n" for line in lines).encode() + b"\n"
    ) == said("\n".join(lines))


@pytest.mark.parametrize(
    "pieces", [[b"x" * 5_001], [b"x" * 1_000] * 6, [b"x" * 4_990, b"x" * 11 + b"\n"]]
)
def test_a_line_that_is_too_long_is_refused_however_it_comes(
    pieces: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "MAX_LINE", 5_000)

    with pytest.raises(ValueError, match="a line of more than"):
        events(*pieces)


def test_a_line_of_the_greatest_length_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_LINE", 8)

    assert events(b"data: ab\n", b"data: ", b"cd\n\n") == said("ab\ncd")
    with pytest.raises(ValueError, match="a line"):
        events(b"data: abc\n")
    with pytest.raises(ValueError, match="a line"):
        events(b"data: ", b"abc\n")


def test_an_event_of_many_lines_may_be_no_longer_than_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "MAX_LINE", 9)

    assert events(b"data:abc\n", b"data\ndata:def\n\n", b"data:ghi\n\n") == said(
        "abc\n\ndef", "ghi"
    )
    for last in (b"data: c\n", b"data\ndata\n", b"data:cd\n\n"):
        with pytest.raises(ValueError, match="an event of more than"):
            events(b"data:abcd\n", b"data:ab\n", last)


@pytest.mark.faults
def test_short_lines_of_one_event_take_hardly_more_memory_than_their_data() -> None:
    reader, lines = EventReader(), b"data:abc\n" * 1_000
    tracemalloc.start()
    try:
        for _ in range(200):
            assert reader.feed(lines) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 2 * len("abc\n") * 200_000


@pytest.mark.faults
def test_a_megabyte_in_single_bytes_takes_one_pass() -> None:
    """Joining all earlier bytes at every byte would copy 500 GB here."""
    reader = EventReader()
    one = [b"x"] * 1_000_000

    assert [event for byte in (b"data: ", *one) for event in reader.feed(byte)] == []
    assert [len(event.data) for event in reader.feed(b"\n\n")] == [1_000_000]
