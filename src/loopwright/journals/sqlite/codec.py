"""How a SQLite journal keeps a codec: what it encodes of a run's row, and the refusal to write without it."""

import base64
import contextlib
import sqlite3
from collections.abc import Sequence

from ..._internal import dataclasses
from ...errors import CodecError
from ...events.payloads import Codec, PayloadPlace, decode_payload, encode_payload
from ...principals import TENANT_TAG
from ..base import NewRun, RunHeader, RunInfo

ENCODED = "codec:"
"""What encoded options begin with; JSON never does."""
# A fact for each key that was ever used, so that processes with different keys do not overwrite each other's.
_USE = "INSERT OR IGNORE INTO facts VALUES ('codec ' || ?, '')"
_USED = "SELECT substr(name, 7) FROM facts WHERE name GLOB 'codec *' ORDER BY rowid"


def encode_header(codec: Codec | None, header: RunHeader) -> RunHeader:
    """Return the header of a run with its options encoded, which may hold prompts and addresses.

    That of a run that was planned under a claim is encoded already.
    """
    if codec is None or header.options.startswith(ENCODED):
        return header
    place = PayloadPlace(header.run_id, "options", header.tags.get(TENANT_TAG, ""))
    encoded = encode_payload(codec, header.options.encode(), place)
    return dataclasses.replace(
        header, options=ENCODED + base64.b64encode(encoded).decode()
    )


def encode_due(codec: Codec | None, due: Sequence[NewRun]) -> tuple[NewRun, ...]:
    """Return runs that are stored whole with the options in their headers encoded; their entries are already."""
    return tuple(NewRun(encode_header(codec, new.header), new.entries) for new in due)


def show_options(codec: Codec | None, info: RunInfo) -> RunInfo:
    """Return the row of a run with its options decoded, which are empty where the codec cannot do that."""
    if not info.options.startswith(ENCODED):
        return info
    options = ""
    with contextlib.suppress(CodecError, ValueError):
        encoded = base64.b64decode(info.options.removeprefix(ENCODED))
        place = PayloadPlace(info.run_id, "options")
        options = decode_payload(codec, encoded, place).decode()
    return dataclasses.replace(info, options=options)


def guard_file(codec: Codec | None, cursor: sqlite3.Cursor) -> None:
    """Note in the file that a codec is used; raise `CodecError` in a process without one, for a file where one is."""
    if codec is None:
        refuse_plain(cursor)
    else:
        cursor.execute(_USE, (describe_codec(codec),))


def refuse_plain(connection: sqlite3.Connection | sqlite3.Cursor) -> None:
    """Raise `CodecError` if the file holds what a codec encoded, so that nothing is added to it that stays readable."""
    used = [str(name) for (name,) in connection.execute(_USED)]
    if used:
        raise CodecError(
            f"codec: this journal is encoded by {' and '.join(used)}, and what a process without a codec writes would stay "
            "readable; open it with its codec: SQLiteJournal(path, codec=...), on the command line with "
            "LOOPWRIGHT_JOURNAL_KEYS, or write to another file"
        )


def describe_codec(codec: Codec) -> str:
    """Return the name that a codec gives itself, else that of its class."""
    name: object = getattr(codec, "name", None)
    return name if isinstance(name, str) and name else type(codec).__name__
