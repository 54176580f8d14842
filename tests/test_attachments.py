"""Images and documents: how they are made and refused, and that they stay with their message through a whole run."""

import base64
import copy
import dataclasses
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    Attachment,
    ChainOfThoughtEngine,
    ConfigError,
    Conversation,
    CriticEngine,
    Journal,
    Limits,
    LoopEngine,
    MemoryJournal,
    Message,
    PlanExecuteEngine,
    ReActEngine,
    ReflexionEngine,
    ReplayDivergence,
    Request,
    Run,
    Runtime,
    SelfAskEngine,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright._kernel.durability.history import open_conversation
from loopwright.attachments import MAX_BYTES
from loopwright.events import ModelRequested, RunFinished, RunStarted
from loopwright.journals import SQLiteJournal
from loopwright.messages import ATTACHMENT_SIZE
from loopwright.providers.context.sliding_context import SlidingContext
from loopwright.providers.context.tokens import estimate_tokens
from loopwright.testing import ScriptedProvider, call, crashed
from loopwright.testing.contracts.models import polite
from sample_tools import look

PNG = b"\x89PNG\r\n\x1a\n-pixels-"
JPEG = b"\xff\xd8\xff\xe0-pixels-"
GIF = b"GIF89a-pixels-"
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8 "
PDF = b"%PDF-1.7\n%pages"
URL = "https://example.test/cat.png"
RUN = "the-run"


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


# --- whether a conversation has some ---


def test_conversation_knows_of_attachments_wherever_they_stand() -> None:
    plain = Conversation().user("one").assistant("two")
    picture = plain.user("look", attachments=[Attachment.image(PNG)])

    assert not plain.has_attachments
    assert picture.has_attachments
    assert not plain.user("three").has_attachments
    assert picture.user("and now?").has_attachments
    assert Conversation(picture.messages).has_attachments
    assert not Conversation(picture.messages[:2]).has_attachments
    assert picture.with_provenance("secret", untrusted=True).has_attachments
    assert pickle.loads(pickle.dumps(picture)).has_attachments
    assert picture.with_system("Be brief.").has_attachments


@pytest.mark.parametrize("is_shown", [True, False])
async def test_conversation_of_a_journal_knows_of_attachments(
    is_shown: bool, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    journal = SQLiteJournal(path)
    runtime = Runtime(ScriptedProvider(["A cat.", "Black."]), journal=journal)
    shown = [Attachment.image(PNG)] if is_shown else []
    first = await ReActEngine(runtime).run(Conversation.of("What?", attachments=shown))
    second = await ReActEngine(runtime).run(first.conversation.user("Which colour?"))
    started = journal.read(second.run_id)[0].event
    assert isinstance(started, RunStarted)
    read_again = open_conversation(SQLiteJournal(path), started)

    for known in (first.conversation, second.conversation, read_again):
        assert known.has_attachments is is_shown
        assert known.user("Thanks.").has_attachments is is_shown
        assert copy.copy(known).has_attachments is is_shown
        seen = known.user("And this?", attachments=[Attachment.image(GIF)])
        assert seen.has_attachments
        assert copy.copy(seen).has_attachments
    await journal.close()


# --- making one ---


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (WEBP, "image/webp"),
    ],
)
def test_the_type_of_an_image_is_seen_from_its_bytes(
    content: bytes, media_type: str
) -> None:
    assert Attachment.image(content, name="x") == Attachment(
        "image", media_type, b64(content), name="x"
    )


def test_the_type_of_a_document_is_seen_from_its_bytes_or_told() -> None:
    assert Attachment.document(PDF) == Attachment(
        "document", "application/pdf", b64(PDF)
    )
    assert Attachment.document(b"a,b", media_type="text/csv") == Attachment(
        "document", "text/csv", b64(b"a,b")
    )


@pytest.mark.parametrize(
    ("name", "media_type"),
    [("a.txt", "text/plain"), ("a.csv", "text/csv"), ("a.HTML", "text/html")],
)
def test_the_type_of_a_file_is_seen_from_its_name_and_its_name_is_kept(
    tmp_path: Path, name: str, media_type: str
) -> None:
    file = tmp_path / name
    file.write_bytes(b"words")

    assert Attachment.document(file) == Attachment(
        "document", media_type, b64(b"words"), name=name
    )
    assert Attachment.document(file, media_type="text/x-own", name="b") == Attachment(
        "document", "text/x-own", b64(b"words"), name="b"
    )


def test_a_file_without_an_ending_is_seen_by_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "scan"
    file.write_bytes(PNG)

    assert Attachment.image(file) == Attachment(
        "image", "image/png", b64(PNG), name="scan"
    )


def test_a_url_is_passed_on_and_not_fetched() -> None:
    assert Attachment.image(URL, name="cat") == Attachment(
        "image", "image/png", url=URL, name="cat"
    )
    assert Attachment.document("http://example.test/paper").media_type == ""


@pytest.mark.parametrize(
    ("url", "media_type", "content"),
    [
        (f"data:image/png;base64,{b64(PNG)}", "image/png", PNG),
        (f"data:;base64,{b64(JPEG)}", "image/jpeg", JPEG),
        (f"data:image/gif;name=x.gif;base64,{b64(GIF)}", "image/gif", GIF),
    ],
)
def test_a_data_url_is_read(url: str, media_type: str, content: bytes) -> None:
    assert Attachment.image(url) == Attachment("image", media_type, b64(content))


@given(st.binary(min_size=1, max_size=300), st.text(max_size=20))
def test_what_goes_in_comes_out(content: bytes, name: str) -> None:
    made = Attachment.document(
        content, media_type="application/octet-stream", name=name
    )

    assert (made.content, made.name) == (content, name)
    assert Attachment.document(made.data_url, name=name) == made


# --- refusing ---


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: Attachment("image", "image/png"),
            "needs either data (base64) or a url",
        ),
        (
            lambda: Attachment("image", "image/png", "aaaa", URL),
            "needs either data (base64) or a url",
        ),
        (lambda: Attachment.image(b""), "has 0 bytes; it must be 1 to 20,000,000"),
        (
            lambda: Attachment.image(PNG + b"x" * MAX_BYTES),
            "it must be 1 to 20,000,000",
        ),
        (
            lambda: Attachment.image(b"who knows"),
            "type unknown: pass media_type=, one of image/png",
        ),
        (
            lambda: Attachment.image(PDF),
            "type application/pdf: pass media_type=, one of image/png",
        ),
        (lambda: Attachment.image(PNG, media_type="image/tiff"), "type image/tiff"),
        (
            lambda: Attachment.document(b"plain words"),
            "document '': type unknown: pass media_type=",
        ),
        (
            lambda: Attachment.image("cat.png"),
            "'cat.png' is not an http(s) or data URL; for a file pass a Path",
        ),
        (
            lambda: Attachment.image("file:///etc/passwd"),
            "is not an http(s) or data URL",
        ),
        (lambda: Attachment.image(""), "is not an http(s) or data URL"),
        (
            lambda: Attachment.image(Path("/nowhere/cat.png")),
            "/nowhere/cat.png cannot be read: No such file",
        ),
        (lambda: Attachment.image(Path("/")), "/ cannot be read: Is a directory"),
        (
            lambda: Attachment.image("data:image/png,plain"),
            "the data URL cannot be read: it is not base64",
        ),
        (
            lambda: Attachment.image("data:image/png;base64,a!b"),
            "the data URL cannot be read: ",
        ),
        (lambda: Attachment.image("data:image/png;base64,"), "has 0 bytes"),
        (lambda: Attachment.image("data:"), "the data URL cannot be read: "),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_reason(make: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()

    assert told in str(refused.value)
    assert len(str(refused.value)) < 300, "no content in an error"


def test_what_is_only_behind_a_url_has_no_content_here() -> None:
    linked = Attachment.image(URL)

    assert linked.data_url == URL
    with pytest.raises(ValueError, match=f"the content of {URL} is not loaded"):
        _ = linked.content


def test_a_repr_does_not_show_the_content() -> None:
    assert b64(PNG) not in repr(
        Conversation.of("Look.", attachments=[Attachment.image(PNG, name="cat")])
    )
    assert "cat" in repr(Attachment.image(PNG, name="cat"))


# --- what a conversation makes of them ---


def of(*sent: Attachment, text: str = "Look.") -> Conversation:
    return Conversation.of(text, attachments=sent)


def test_the_digest_of_a_conversation_follows_the_content() -> None:
    cat, dog = Attachment.image(PNG), Attachment.image(PNG + b"!")

    assert of(cat) == of(Attachment.image(PNG))
    assert (
        len(
            {
                of().digest,
                of(cat).digest,
                of(dog).digest,
                of(cat, dog).digest,
                of(dog, cat).digest,
            }
        )
        == 5
    )
    assert of(cat) != of(Attachment.document(PNG)), (
        "the same bytes as a document are another thing to a model"
    )
    assert of(cat) != of(Attachment.image(URL))


def test_each_attachment_counts_the_same_in_the_size_of_a_conversation() -> None:
    small, large = Attachment.image(PNG), Attachment.image(PNG + b"x" * 1_000_000)

    assert of(large).size == of(small).size
    assert of(small).size - of().size > ATTACHMENT_SIZE
    assert estimate_tokens(of(large)) < 2_000


def test_a_conversation_that_fits_with_its_pictures_is_left_alone() -> None:
    conversation = of(Attachment.image(PNG))

    assert SlidingContext().fit(conversation, 2_000) is conversation


def test_the_pictures_of_the_task_stay_when_older_turns_slide_out() -> None:
    cat = Attachment.image(PNG)
    talk = [
        Message("user" if i % 2 == 0 else "assistant", f"{i} " * 400, origin="engine")
        for i in range(20)
    ]
    conversation = Conversation(
        [
            Message("system", "Be kind."),
            *talk,
            Message("user", "Look.", attachments=(cat,)),
        ]
    )

    fitted = SlidingContext().fit(conversation, 3_000)

    assert len(fitted) < len(conversation)
    assert fitted.messages[-1].attachments == (cat,)


def test_attachments_can_be_added_later() -> None:
    cat = Attachment.image(PNG)

    talk = (
        Conversation.of("Hello.").assistant("Hello.").user("Look.", attachments=[cat])
    )

    assert [message.attachments for message in talk] == [(), (), (cat,)]
    assert talk.with_system("Be kind.").messages[3].attachments == (cat,)


# --- through a run ---


SENT = (
    Attachment.image(PNG, name="cat.png"),
    Attachment.document(PDF, name="cat.pdf"),
    Attachment.image(URL),
)
TASK = Conversation(
    [
        Message("system", "Be kind."),
        Message("user", "What colour is it?", attachments=SENT),
    ]
)


@tool(effect="write")
async def put(what: str) -> str:
    """Put something down."""
    return f"{what} put"


def sent_in(request: Request) -> Sequence[Attachment]:
    return [
        attachment
        for message in request.conversation
        for attachment in message.attachments
    ]


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each kind of journal."""
    made: Any = (
        MemoryJournal()
        if request.param == "memory"
        else SQLiteJournal(tmp_path / "runs.db")
    )
    yield made
    if request.param == "sqlite":
        await made.close()


async def test_a_journal_gives_them_back_as_they_were(journal: Journal) -> None:
    provider = ScriptedProvider([call("look", what="cat"), "blue"])

    engine = ReActEngine(Runtime(provider, tools=[look], journal=journal))
    result = await engine.run(TASK, run_id=RUN)
    first, *_, last = (entry.event for entry in journal.read(RUN))
    again = await engine.resume(RUN)

    assert isinstance(first, RunStarted)
    assert isinstance(last, RunFinished)
    assert first.messages == TASK.messages
    assert last.kept == len(TASK)
    assert again.conversation.messages[:2] == TASK.messages
    assert again.conversation.messages == result.conversation.messages
    assert [sent_in(request) for request in provider.requests] == [list(SENT)] * 2
    assert journal.verify(RUN, result.head_hash).ok


async def test_a_resumed_run_sends_them_again(journal: Journal) -> None:
    script = [call("look", what="cat"), "blue"]

    def model(request: Request) -> Any:
        return script[
            sum(message.role == "assistant" for message in request.conversation)
        ]

    whole = await ReActEngine(
        Runtime(ScriptedProvider(model), tools=[look], journal=journal)
    ).run(TASK, run_id=RUN)
    entries = journal.read(RUN)

    for keep in range(1, len(entries)):
        provider = ScriptedProvider(model)
        rest = Runtime(provider, tools=[look], journal=crashed(entries, keep))
        result = await ReActEngine(rest).resume(RUN)
        assert (result.answer, result.conversation) == (
            whole.answer,
            whole.conversation,
        )
        assert [sent_in(request) for request in provider.requests] == [
            list(SENT)
        ] * len(provider.requests)


class Photographer(LoopEngine):
    """Attaches what lies in a file."""

    name = "photographer"
    file: str = ""

    async def solve(self, run: Run) -> str:
        """Ask about the file as it is now."""
        seen = run.conversation.user(
            "And this?", attachments=[Attachment.image(Path(self.file))]
        )
        await run.ask(seen)
        return await run.ask(seen.assistant("Hm.").user("Well?"))


async def test_another_picture_on_resume_is_divergence_and_no_silent_mix(
    tmp_path: Path,
) -> None:
    file = tmp_path / "now.png"
    file.write_bytes(PNG)
    runtime = Runtime(ScriptedProvider(["a cat", "a big cat"]))
    await Photographer(runtime, file=str(file)).run("Look.", run_id=RUN)
    entries = runtime.journal.read(RUN)
    second = [
        i for i, entry in enumerate(entries) if isinstance(entry.event, ModelRequested)
    ][1]

    file.write_bytes(PNG + b"changed")
    rest = Runtime(ScriptedProvider(["never"]), journal=crashed(entries, second))

    with pytest.raises(ReplayDivergence):
        await Photographer(rest, file=str(file)).resume(RUN)


@pytest.mark.parametrize(
    "engine",
    [
        ChainOfThoughtEngine, CriticEngine, PlanExecuteEngine, ReActEngine, ReflexionEngine, SelfAskEngine,
        TreeOfThoughtsEngine,
    ],
    ids=lambda engine: engine.name,
)  # fmt: skip
async def test_every_engine_shows_them_to_the_model(engine: type[LoopEngine]) -> None:
    provider = ScriptedProvider(polite)

    result = await engine(Runtime(provider, tools=[look, put])).run(TASK)

    blind = [
        request.conversation.messages[-1].content
        for request in provider.requests
        if not sent_in(request)
    ]
    assert result.status == "completed"
    assert blind == []


async def test_a_picture_too_many_for_the_context_is_still_sent_with_its_task() -> None:
    provider = ScriptedProvider(["blue"])
    runtime = Runtime(provider, limits=Limits(context_tokens=1_000))

    result = await ReActEngine(runtime).run(TASK)

    assert (result.status, sent_in(provider.requests[0])) == ("completed", list(SENT))


def test_an_attachment_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Attachment.image(PNG).name = "dog"  # type: ignore[misc]


def test_a_pipe_a_device_or_a_folder_is_no_attachment(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    (tmp_path / "link.png").symlink_to("/dev/zero")

    for path in (pipe, tmp_path / "link.png", Path("/dev/null")):
        for make in (Attachment.image, Attachment.document):
            with pytest.raises(ConfigError, match="is not a regular file; pass a Path"):
                make(path, media_type="image/png")
    with pytest.raises(ConfigError, match="Is a directory"):
        Attachment.document(tmp_path)


def test_no_more_of_a_file_is_read_than_an_attachment_may_have(tmp_path: Path) -> None:
    sparse = tmp_path / "big.png"
    with sparse.open("wb") as file:
        file.truncate(100 * MAX_BYTES)

    with pytest.raises(ConfigError, match=f"has {MAX_BYTES + 1} bytes; it must be"):
        Attachment.image(sparse)
