"""Attachments of user messages and of tool results: images and documents."""

import base64
import binascii
import dataclasses
import hashlib
import mimetypes
import os
import re
import stat
from pathlib import Path
from typing import Literal, Self, TypeAlias

from .errors import ConfigError

AttachmentKind: TypeAlias = Literal["image", "document"]
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
SIGNATURES = {
    b"\x89PNG\r\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}
BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
TEXT_TYPES = frozenset(
    {"application/json", "application/xml", "application/yaml", "image/svg+xml"}
)
MAX_BYTES = 20_000_000  # more than any provider accepts in one request
MAX_RESULT_ATTACHMENTS = 20  # of one tool result; Bedrock takes no more in a message
MAX_RESULT_BYTES = 10_000_000  # of all attachments of one tool result
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


@dataclasses.dataclass(frozen=True)
class Attachment:
    """An image or a document of a user message or of a tool's result; make one with
    `Attachment.image` or `Attachment.document`.

    Args:
        kind: "image" or "document".
        media_type: MIME type: "image/png", "application/pdf", "text/plain".
        data: the content as base64; empty if there is a `url`.
        url: where the provider fetches it; empty if there is `data`.
        name: its name as the model reads it.

    Raises `ConfigError` unless exactly one of `data` and `url` is given.
    """

    kind: AttachmentKind
    media_type: str
    data: str = dataclasses.field(default="", repr=False)
    url: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if bool(self.data) == bool(self.url):
            raise ConfigError(
                f"attachment {self.name!r}: needs either data (base64) or a url"
            )
        if self.kind not in ("image", "document"):
            raise ConfigError(
                f"attachment {self.name!r}: kind must be 'image' or 'document', got {self.kind!r}"
            )
        if not BASE64.fullmatch(self.data):
            raise ConfigError(
                f"attachment {self.name!r}: data is not base64: use Attachment.{self.kind}(bytes)"
            )

    @classmethod
    def image(
        cls, source: bytes | str | Path, *, media_type: str = "", name: str = ""
    ) -> Self:
        """Return an image of bytes, a file (a `Path`), or an http(s) or data URL.

        The type is detected from the bytes, else from the name.
        """
        return cls._load("image", source, media_type, name)

    @classmethod
    def document(
        cls, source: bytes | str | Path, *, media_type: str = "", name: str = ""
    ) -> Self:
        """Return a document (PDF, text) of bytes, a file (a `Path`), or an http(s) or data URL."""
        return cls._load("document", source, media_type, name)

    @classmethod
    def _load(
        cls,
        kind: AttachmentKind,
        source: bytes | str | Path,
        media_type: str,
        name: str,
    ) -> Self:
        if isinstance(source, Path):
            content = _read_file(source)
            media_type = media_type or detect_media_type(content)
            media_type = media_type or _guess_media_type(source.name)
            return cls._encode(kind, content, media_type, name or source.name)
        if not isinstance(source, str):
            return cls._encode(kind, source, media_type, name)
        if source.startswith("data:"):
            given, content = _read_data_url(source)
            return cls._encode(kind, content, media_type or given, name)
        if not source.startswith(("https://", "http://")):
            raise ConfigError(
                f"{kind}: {source[:80]!r} is not an http(s) or data URL; for a file pass a Path"
            )
        guessed = media_type or _guess_media_type(source)
        return cls(kind, guessed, url=source, name=name)

    @classmethod
    def _encode(
        cls, kind: AttachmentKind, content: bytes, media_type: str, name: str
    ) -> Self:
        """Return an attachment of bytes; raise `ConfigError` for a size or type that is not
        allowed.
        """
        if not 0 < len(content) <= MAX_BYTES:
            raise ConfigError(
                f"{kind} {name!r}: has {len(content)} bytes; it must be 1 to {MAX_BYTES:,}"
            )
        media_type = media_type or detect_media_type(content)
        is_allowed = kind == "document" or media_type in IMAGE_TYPES
        if not media_type or not is_allowed:
            choices = f", one of {', '.join(IMAGE_TYPES)}" if kind == "image" else ""
            raise ConfigError(
                f"{kind} {name!r}: type {media_type or 'unknown'}: pass media_type={choices}"
            )
        return cls(kind, media_type, base64.b64encode(content).decode(), name=name)

    @property
    def data_url(self) -> str:
        """The content as a URL: `url` itself, or a data URL."""
        return self.url or f"data:{self.media_type};base64,{self.data}"

    @property
    def content(self) -> bytes:
        """The content itself; ValueError where there is only a URL."""
        if not self.data:
            raise ValueError(f"the content of {self.url} is not loaded")
        return base64.b64decode(self.data)

    @property
    def size(self) -> int:
        """The bytes of the content, by its base64; 0 where there is only a URL."""
        padding = len(self.data) - len(self.data.rstrip("="))
        return len(self.data) * 3 // 4 - padding

    @property
    def is_text(self) -> bool:
        """Whether the content is text, by the media type."""
        is_known = self.kind == "document" and self.media_type in TEXT_TYPES
        return self.media_type.startswith("text/") or is_known

    def describe(self) -> str:
        """Return it in words: `image chart.png, image/png, 12,345 bytes`."""
        place = self.url or f"{self.size:,} bytes"
        parts = f"{self.kind} {self.name}".strip(), self.media_type, place
        return ", ".join(part for part in parts if part)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the content, or of its URL."""
        return hashlib.sha256((self.data or self.url).encode()).hexdigest()


def detect_media_type(content: bytes) -> str:
    """Return the media type that the first bytes show, or an empty text."""
    for signature, media_type in SIGNATURES.items():
        if content.startswith(signature):
            return media_type
    is_webp = content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    return "image/webp" if is_webp else ""


def _guess_media_type(name: str) -> str:
    """Return the media type that the ending of a name or URL suggests, or an empty text."""
    guessed, _ = mimetypes.guess_type(name)
    return guessed or ""


def _read_file(path: Path) -> bytes:
    """Return the content of a regular file; of one that is too long, more than `MAX_BYTES`.

    A pipe or a device might wait for ever or never end, and is not read. Raises `ConfigError`.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(
                    f"attachment: '{path}' is not a regular file; pass a Path of one, or bytes"
                )
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"attachment: {path} cannot be read: {error.strerror}"
        ) from None


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; opening a pipe would wait for its writer otherwise."""
    return os.open(path, flags | NO_WAIT)


def _read_data_url(url: str) -> tuple[str, bytes]:
    head, _, payload = url.removeprefix("data:").partition(",")
    media_type, *attributes = head.split(";")
    try:
        if "base64" not in attributes:
            raise ValueError("it is not base64")
        return media_type, base64.b64decode(payload, validate=True)
    except (ValueError, binascii.Error) as error:
        raise ConfigError(f"attachment: the data URL cannot be read: {error}") from None
