"""The port for codecs, which encode what a journal stores, such as to encrypt it."""

from typing import Protocol

from .._internal import dataclasses
from ..errors import CodecError

MARK = b"\x00codec\x00"
"""What every encoded payload begins with; JSON never does."""


@dataclasses.dataclass(frozen=True)
class PayloadPlace:
    """Where a payload is stored, so that a codec can bind it to that place.

    Args:
        run_id: the run that it belongs to; empty for a schedule.
        name: its place there: `entry 3 model_replied`, `command 1 steer`, `schedule daily`.
        tenant: the tenant of the principal that started the run, for which a codec may have a key of its own. It is told
            when a payload is encoded, and empty when it is decoded.
    """

    run_id: str
    name: str
    tenant: str = dataclasses.field(default="", compare=False)

    def __str__(self) -> str:
        return f"run {self.run_id!r}, {self.name}" if self.run_id else self.name


class Codec(Protocol):
    """Encodes payloads, which are JSON, before a journal stores them, and decodes what was read.

    Both are called in the event loop and in threads, for every entry, so they may not wait for a service. What `encode`
    returns may differ each time. `AESCodec` in `loopwright.security` encrypts.
    """

    def encode(self, payload: bytes, place: PayloadPlace) -> bytes:
        """Return what is stored in the place of a payload."""
        ...

    def decode(self, encoded: bytes, place: PayloadPlace) -> bytes:
        """Return the payload; raise `CodecError` for one that it cannot decode, or that stands in another place."""
        ...


def encode_payload(codec: Codec | None, payload: bytes, place: PayloadPlace) -> bytes:
    """Return the bytes to store; raise `CodecError` if the codec fails, so that nothing is stored as it is."""
    if codec is None:
        return payload
    try:
        return MARK + codec.encode(payload, place)
    except CodecError:
        raise
    except Exception as error:  # third-party code
        raise CodecError(
            f"{place}: cannot be encoded: {type(error).__name__}: {error}"
        ) from error


def decode_payload(codec: Codec | None, stored: bytes, place: PayloadPlace) -> bytes:
    """Return the payload of stored bytes, also of those from before a codec; raise `CodecError` if it cannot be read."""
    if not stored.startswith(MARK):
        return stored
    if codec is None:
        raise CodecError(
            f"{place}: is encoded; open the journal with its codec: SQLiteJournal(path, codec=...), "
            "on the command line with LOOPWRIGHT_JOURNAL_KEYS"
        )
    try:
        return codec.decode(stored[len(MARK) :], place)
    except CodecError:
        raise
    except Exception as error:  # third-party code
        raise CodecError(
            f"{place}: cannot be decoded: {type(error).__name__}: {error}"
        ) from error
