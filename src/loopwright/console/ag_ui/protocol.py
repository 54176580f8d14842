"""The types of AG-UI 1.0, from its own package, and how a request of it is read."""

from pydantic import ValidationError

from ...attachments import Attachment, AttachmentKind
from ...errors import ConfigError
from ..guard import RefusedRequest

try:
    from ag_ui import core as core
except ModuleNotFoundError as missing:  # pragma: no cover - tried without the extra
    raise ConfigError(
        f"AG-UI needs {missing.name}: pip install 'loopwright[ag-ui]'"
    ) from None


def read_input(body: bytes) -> core.RunAgentInput:
    """Return the request in a body; raise `RefusedRequest` that names what is wrong."""
    try:
        return core.RunAgentInput.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"])) or "the body"
        raise RefusedRequest(400, f"{place}: {problem['msg']}") from None


def find_message(given: core.RunAgentInput) -> core.UserMessage | None:
    """Return the newest message if it is a person's; the others are not read: the journal has the history."""
    last = given.messages[-1] if given.messages else None
    return last if isinstance(last, core.UserMessage) else None


def find_results(given: core.RunAgentInput) -> list[core.ToolMessage]:
    """Return the results of the client's own tools, which end its messages."""
    found: list[core.ToolMessage] = []
    for message in reversed(given.messages):
        if not isinstance(message, core.ToolMessage):
            break
        found.append(message)
    return found[::-1]


def read_text(message: core.UserMessage | core.ToolMessage) -> str:
    """Return the text of a message."""
    if isinstance(message.content, str):
        return message.content
    parts = [part.text for part in message.content if isinstance(part, core.TextPart)]
    return "\n".join(parts)


def read_attachments(message: core.UserMessage) -> tuple[Attachment, ...]:
    """Return the images and documents of a message; raise `RefusedRequest` for other parts."""
    if isinstance(message.content, str):
        return ()
    others = [one for one in message.content if not isinstance(one, core.TextPart)]
    return tuple(map(_read_attachment, others))


def _read_attachment(part: object) -> Attachment:
    if not isinstance(part, (core.ImagePart, core.DocumentPart)):
        got = getattr(part, "type", type(part).__name__)
        raise RefusedRequest(
            400, f"messages: parts are text, image or document, got {got!r}"
        )
    kind: AttachmentKind = "image" if isinstance(part, core.ImagePart) else "document"
    source = part.source
    try:
        if isinstance(source, core.DataSource):
            return Attachment(kind, source.mime_type, data=source.value)
        if isinstance(source, core.UrlSource):
            return Attachment(kind, source.mime_type or "", url=source.value)
    except ConfigError as error:
        raise RefusedRequest(400, f"messages: {error}") from None
    raise RefusedRequest(400, "messages: an attachment needs data or a url")


def describe_context(given: core.RunAgentInput) -> str:
    """Return what the front end says of itself, as lines; empty for nothing."""
    return "\n".join(f"{one.description}: {one.value}" for one in given.context or ())
