"""What a user sends beside words: images and documents."""

import base64
import binascii
import dataclasses
import hashlib
import mimetypes
import re
from pathlib import Path
from typing import Literal, Self, TypeAlias

from .errors import ConfigError

AttachmentKind: TypeAlias = Literal["image", "document"]
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MARKS = {
    b"\x89PNG\r\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}
BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
MAX_BYTES = 20_000_000  # above what any provider takes in one request


@dataclasses.dataclass(frozen=True)
class Attachment:
    """An image or a document of a user message; make one with `Attachment.image` or `Attachment.document`.

    Args:
        kind: "image" or "document".
        media_type: MIME type: "image/png", "application/pdf", "text/plain".
        data: the content as base64; empty if it is behind `url`.
        url: where the provider fetches it; empty if it is in `data`.
        name: what the model is told it is called.

    Raises `ConfigError` unless exactly one of `data` and `url` is there.
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
        """An image: its bytes, a file (a `Path`), or an http(s) or data URL. The type is seen from bytes and names."""
        return cls._of("image", source, media_type, name)

    @classmethod
    def document(
        cls, source: bytes | str | Path, *, media_type: str = "", name: str = ""
    ) -> Self:
        """A document (PDF, text): its bytes, a file (a `Path`), or an http(s) or data URL."""
        return cls._of("document", source, media_type, name)

    @classmethod
    def _of(
        cls,
        kind: AttachmentKind,
        source: bytes | str | Path,
        media_type: str,
        name: str,
    ) -> Self:
        if isinstance(source, Path):
            name = name or source.name
            content = _read(source)
            media_type = (
                media_type
                or detect_media_type(content)
                or mimetypes.guess_type(source.name)[0]
                or ""
            )
            source = content
        if isinstance(source, str):
            if source.startswith("data:"):
                given, content = _from_data_url(source)
                return cls._of(kind, content, media_type or given, name)
            if not source.startswith(("https://", "http://")):
                raise ConfigError(
                    f"{kind}: {source[:80]!r} is no http(s) or data URL; for a file pass a Path"
                )
            return cls(
                kind,
                media_type or mimetypes.guess_type(source)[0] or "",
                url=source,
                name=name,
            )
        if not 0 < len(source) <= MAX_BYTES:
            raise ConfigError(
                f"{kind} {name!r}: has {len(source)} bytes; it must be 1 to {MAX_BYTES:,}"
            )
        media_type = media_type or detect_media_type(source)
        if not media_type or (kind == "image" and media_type not in IMAGE_TYPES):
            raise ConfigError(
                f"{kind} {name!r}: type {media_type or 'unknown'}: pass media_type="
                + (f", one of {', '.join(IMAGE_TYPES)}" if kind == "image" else "")
            )
        return cls(kind, media_type, base64.b64encode(source).decode(), name=name)

    @property
    def data_url(self) -> str:
        """The content as a URL: `url` itself, or a data URL."""
        return self.url or f"data:{self.media_type};base64,{self.data}"

    @property
    def content(self) -> bytes:
        """The content itself; raises ValueError where there is only a URL."""
        if not self.data:
            raise ValueError(f"the content of {self.url} is not here")
        return base64.b64decode(self.data)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the content, or of its URL."""
        return hashlib.sha256((self.data or self.url).encode()).hexdigest()


def detect_media_type(content: bytes) -> str:
    """The media type that the first bytes tell, or an empty string."""
    found = next((kind for mark, kind in MARKS.items() if content.startswith(mark)), "")
    return found or (
        "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else ""
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"attachment: {path} cannot be read: {error.strerror}"
        ) from None


def _from_data_url(url: str) -> tuple[str, bytes]:
    head, _, payload = url.removeprefix("data:").partition(",")
    media_type, *marks = head.split(";")
    try:
        if "base64" not in marks:
            raise ValueError("it is not base64")
        return media_type, base64.b64decode(payload, validate=True)
    except (ValueError, binascii.Error) as error:
        raise ConfigError(f"attachment: the data URL cannot be read: {error}") from None
