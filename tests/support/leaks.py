"""Looks for secrets in all that runs leave behind: files, what was shown, and errors with all that led to them."""

import base64
import dataclasses
import json
import pickle
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from loopwright import LoopwrightError, Result
from loopwright.security import REDACTED
from planted_secrets import PLANTED, marked

WINDOW = 14  # characters of a secret that are enough to know it by
SHORTEST = (
    6  # characters; a shorter one would be found in what has nothing to do with it
)


def secret_of(name: str) -> str:
    """What of a planted text is the secret: what stands where the mark is in what is kept."""
    text, kept = PLANTED[name]
    pattern = "(.+)".join(map(re.escape, marked(kept).split(REDACTED)))
    found = re.fullmatch(pattern, text, re.DOTALL)
    assert found is not None
    return found[1]


SHAPES = [name for name in PLANTED if len(secret_of(name)) >= SHORTEST]


def needles(secret: str) -> set[bytes]:
    """Pieces of a secret (the first, the last, one in the middle), in the spellings in which they may lie about."""
    body = (
        secret.split("-----")[2] if secret.startswith("-----") else secret
    )  # the head of a key is none
    body = max(body.split("\n"), key=len)
    places = {0, max(0, len(body) - WINDOW), max(0, len(body) // 2 - WINDOW // 2)}
    return {
        form for place in places for form in spellings(body[place : place + WINDOW])
    }


def spellings(piece: str) -> set[bytes]:
    """A text as it is, as JSON in JSON, in an address, and in base64 at each of its three places."""
    forms = {
        piece,
        json.dumps(piece)[1:-1],
        json.dumps(json.dumps(piece)[1:-1])[1:-1],
        quote(piece),
        quote_plus(piece),
    }
    forms |= {quote(piece, safe=""), repr(piece)[1:-1]}
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + piece.encode()).decode()
        inner = encoded[4 if before else 0 : (len(piece) + before) // 3 * 4]
        if len(inner) >= 10:
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {form.encode() for form in forms}


@dataclasses.dataclass
class Left:
    """What runs left behind, by where it lies."""

    folder: Path
    texts: dict[str, list[str]] = dataclasses.field(
        default_factory=dict[str, list[str]]
    )

    def say(self, where: str, what: object) -> None:
        """Something that was shown."""
        self.texts.setdefault(where, []).append(
            what if isinstance(what, str) else repr(what)
        )

    def show(self, result: Result[Any]) -> None:
        """All that a result tells."""
        self.say("repr of the result", result)
        self.say("conversation", result.conversation)
        self.say("facts and questions", (result.facts, result.pending))
        if result.error is not None:
            self.say("traceback", "".join(traceback.format_exception(result.error)))
            self.say(
                "chain of the error", [repr(error) for error in chain(result.error)]
            )
            self.say("pickled error", pickle.dumps(result.error).decode("latin-1"))
            with pytest.raises(LoopwrightError) as caught:
                result.raise_for_status()
            self.say(
                "raise_for_status", "".join(traceback.format_exception(caught.value))
            )

    def where(self, secret: str) -> list[str]:
        """Where a secret is found."""
        sought = needles(secret)
        held = {
            where: "\n".join(texts).encode("utf-8", "surrogatepass")
            for where, texts in self.texts.items()
        }
        held |= {
            str(path.relative_to(self.folder)): data for path, data in self.files()
        }
        return [
            where
            for where, data in held.items()
            if any(needle in data for needle in sought)
        ]

    def files(self) -> Iterator[tuple[Path, bytes]]:
        """All files of the folder, with what they hold."""
        yield from (
            (path, path.read_bytes())
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        )

    @property
    def size(self) -> int:
        """Bytes that are searched."""
        texts = sum(len(text) for told in self.texts.values() for text in told)
        return texts + sum(len(held) for _, held in self.files())


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and all that led to it, whether Python shows it or not."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and all(one is not other for other in seen):
            seen.append(one)
            waiting += one.__cause__, one.__context__
    return iter(seen)
