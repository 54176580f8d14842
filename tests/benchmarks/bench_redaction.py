"""What redaction costs, for ordinary and for hostile text: `python tests/benchmarks/bench_redaction.py`."""

import functools
import json
import time
from collections.abc import Callable

from loopwright.messages import Json
from loopwright.security import Redactor

PROSE = "The run reads its journal and answers each effect from what it finds there, once and in order. "
SHORT = "The sky is blue over Paris: 21 degrees."
CODE = 'token = tokens[i]\nself._key: str = name or "run-0123456789abcdef"  # see src/loopwright/run.py:33\n'
LEAKY = "export DB_PASSWORD=hunter2; curl -H 'Authorization: Bearer abc123' https://ada:pw1@example.com/?x=1 # ok\n"
KEYS = [f"registered-value-{number}" for number in range(10)]

# name → what is repeated up to 100 kB
HOSTILE = {
    "one letter": "a",
    "sk-": "sk-",
    "eyJ": "eyJ",
    "-eyJ": "-eyJ",
    "task-": "task-",
    "password=": "password=",
    "password =": "password = ",
    'password="': 'password="',
    "token: ": "token: ",
    "-----BEGIN": "-----BEGIN ",
    "private keys": "-----BEGIN PRIVATE KEY-----",
    "quotes": '"',
    "://": "://",
    ":// and @": "://a:@",
    "backslashes": "\\",
    "@": "@",
    "hyphens": "-",
    "underscores": "_",
    "Authorization": "Authorization: ",
    "Cookie": "Cookie: a=b; ",
    "Bearer": "Bearer ",
    "AKIA": "AKIA",
}


def repeated(text: str, size: int) -> str:
    """A text again and again, up to so many characters."""
    return (text * (size // len(text) + 1))[:size]


def microseconds(task: Callable[[str], object], text: str, repeats: int) -> float:
    """CPU time of one call, the best of five rounds."""
    task(text)
    rounds: list[float] = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(repeats):
            task(text)
        rounds.append((time.process_time() - begun) / repeats)
    return min(rounds) * 1e6


def streamed(redactor: Redactor, text: str, size: int) -> str:
    """A text that comes in pieces of so many characters."""
    stream = redactor.open_stream()
    return (
        "".join([stream.feed(text[at : at + size]) for at in range(0, len(text), size)])
        + stream.end()
    )


def ordinary() -> None:
    """Print what ordinary text costs, as a whole, as a JSON value and in pieces."""
    plain = Redactor()
    print(
        f"a sentence, {len(SHORT)} characters: {microseconds(plain.redact_text, SHORT, 2000):.1f} us"
    )
    for name, redactor in (("shapes", plain), ("shapes and 10 values", Redactor(KEYS))):
        for kind, text in (("prose", PROSE), ("code", CODE), ("leaky", LEAKY)):
            small = microseconds(redactor.redact_text, repeated(text, 1_000), 500)
            large = microseconds(redactor.redact_text, repeated(text, 100_000), 2) / 1e3
            print(f"{name}, {kind}: {small:.1f} us for 1 kB, {large:.2f} ms for 100 kB")
    call: Json = {
        "path": "src/loopwright/run.py",
        "query": "what is it",
        "limit": 10,
        "options": {"case": True},
    }
    cost = microseconds(lambda _: plain.redact_value(call), "", 500)
    print(f"arguments of a call, {len(json.dumps(call))} B: {cost:.1f} us")
    text = repeated(PROSE, 4_000)
    for size in (4, 40):
        cost = microseconds(functools.partial(streamed, plain, size=size), text, 3) / (
            len(text) / size
        )
        print(f"stream, pieces of {size} characters: {cost:.1f} us a piece")


def main() -> None:
    """Print a line for each case."""
    plain = Redactor()
    for kind, text in (("plain", SHORT), ("code", CODE), ("leaky", LEAKY)):
        begun = time.process_time()
        plain.redact_text(text)
        print(
            f"first {kind} text, with the patterns that it hints at: {(time.process_time() - begun) * 1e3:.1f} ms"
        )
    ordinary()
    for name, text in HOSTILE.items():
        print(
            f"hostile, {name}: {microseconds(plain.redact_text, repeated(text, 100_000), 1) / 1e3:.2f} ms for 100 kB"
        )


if __name__ == "__main__":
    main()
