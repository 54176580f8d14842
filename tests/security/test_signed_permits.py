"""Capabilities: what policy let through is carried out elsewhere as it was let through, by whom it was, and once."""

import base64
import dataclasses
import hmac
import json
import math
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loopwright import ConfigError, ReActEngine, Runtime, ToolContext, tool
from loopwright.errors import CapabilityError
from loopwright.messages import Json, canonical_json, hash_arguments
from loopwright.security.permit_claims import Claims
from loopwright.security.signed_permits import (
    NONCE_RETENTION,
    SALT,
    CapabilitySigner,
    CapabilityVerifier,
    MemoryNonces,
    NonceStore,
    SQLiteNonces,
)
from loopwright.testing import ScriptedProvider, call

SECRET = b"0123456789abcdef0123456789abcdef"
OTHER = b"another secret, of 32 bytes, too"
ARGUMENTS: dict[str, Json] = {"name": "a.txt", "size": 3}
NOW = 1_800_000_000.0
CLAIMS = Claims(
    "run-1",
    "main/3",
    "call-7",
    "upload",
    hash_arguments(ARGUMENTS),
    "policy-2",
    NOW + 60,
)


def sign(claims: Claims = CLAIMS, **changes: object) -> str:
    return CapabilitySigner(SECRET).sign(dataclasses.replace(claims, **changes))


def verify(
    token: str, verifier: CapabilityVerifier | None = None, **other: object
) -> Claims:
    expected = {"tool": "upload", "arguments": ARGUMENTS, "now": NOW, **other}
    return (verifier or CapabilityVerifier(SECRET)).verify(token, **expected)


def failed_check(
    token: str, verifier: CapabilityVerifier | None = None, **other: object
) -> str:
    with pytest.raises(CapabilityError) as caught:
        verify(token, verifier, **other)
    return caught.value.check


def payload_of(token: str) -> dict[str, Json]:
    return json.loads(base64.urlsafe_b64decode(token.partition(".")[0] + "=="))


def written(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(raw: bytes) -> str:
    """Any bytes with a signature that is good."""
    key = hmac.digest(SECRET, SALT.encode(), sha256)
    return f"{written(raw)}.{written(hmac.digest(key, written(raw).encode(), sha256))}"


# --- what holds ---


def test_what_was_signed_is_what_the_executor_reads() -> None:
    assert verify(sign()) == CLAIMS
    assert verify(sign(), run_id="run-1") == CLAIMS


def test_two_tokens_of_one_call_are_two() -> None:
    signer = CapabilitySigner(SECRET)
    tokens = {signer.sign(CLAIMS) for _ in range(50)}

    assert len(tokens) == 50


def test_the_order_of_arguments_is_no_difference_but_any_other_is() -> None:
    assert verify(sign(), arguments={"size": 3, "name": "a.txt"}) == CLAIMS
    for changed in (
        {},
        {"name": "a.txt"},
        {"name": "a.txt", "size": "3"},
        {"name": "a.txt", "size": 3.0},
    ):
        assert failed_check(sign(), arguments=changed) == "arguments"
    assert failed_check(sign(), arguments=ARGUMENTS | {"more": None}) == "arguments"
    assert failed_check(sign(), arguments={"name": math.nan}) == "arguments"


async def test_a_tool_signs_its_claims_and_the_executor_finds_its_arguments_in_them() -> (
    None
):
    signer, verifier, carried_out = (
        CapabilitySigner(SECRET),
        CapabilityVerifier(SECRET),
        [],
    )

    @tool
    async def upload(ctx: ToolContext[None], name: str, size: int = 3) -> str:
        """Upload a file."""
        assert ctx.claims is not None
        sent = {
            "name": name
        }  # what the model asked for; a default of the function is no part of it
        carried_out.append(
            verifier.verify(
                signer.sign(ctx.claims),
                tool="upload",
                arguments=sent,
                run_id=ctx.run_id,
            )
        )
        return "uploaded"

    model = ScriptedProvider([call("upload", name="a.txt"), "Done."])
    result = await ReActEngine(Runtime(model, tools=[upload])).run("Upload it.")

    assert result.conversation.messages[-2].content == "uploaded"
    assert [
        (claims.run_id, claims.tool, claims.policy_version) for claims in carried_out
    ] == [(result.run_id, "upload", "default-1")]


# --- what does not ---


@pytest.mark.parametrize(
    "field", [field.name for field in dataclasses.fields(Claims)] + ["nonce"]
)
def test_no_field_can_be_changed(field: str) -> None:
    token = sign()
    payload, signature = payload_of(token), token.partition(".")[2]
    changed = payload | {
        field: payload[field] + 1
        if isinstance(payload[field], float)
        else f"{payload[field]}0"
    }

    assert (
        failed_check(f"{written(canonical_json(changed))}.{signature}") == "signature"
    )


def test_no_character_can_be_changed() -> None:
    token = sign()
    for place, character in enumerate(token):
        for other in {"A", "B", "-", "."} - {character}:
            assert failed_check(token[:place] + other + token[place + 1 :]) in (
                "signature",
                "form",
            )
        assert failed_check(token[:place] + token[place + 1 :]) in ("signature", "form")


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("tool", {"tool": "delete"}),
        ("tool", {"tool": "Upload"}),
        ("tool", {"tool": "\ud800"}),
        ("tool", {"tool": None}),
        ("tool", {"tool": 5}),
        ("arguments", {"arguments": {}}),
        ("run", {"run_id": "run-2"}),
        ("run", {"run_id": ""}),
        ("run", {"run_id": 5}),
        ("expiry", {"now": NOW + 62.5}),
        ("expiry", {"now": math.nan}),
        ("expiry", {"now": math.inf}),
    ],
)
def test_the_error_says_which_check_failed_and_nothing_of_what_was_signed(
    check: str, expected: dict[str, Json]
) -> None:
    token = sign()
    with pytest.raises(CapabilityError) as caught:
        verify(token, **expected)

    assert caught.value.check == check
    assert not [
        value
        for value in (*payload_of(token).values(), SECRET.decode(), token)
        if str(value) in f"{caught.value}"
    ]


def test_a_token_that_failed_another_check_is_not_used_up() -> None:
    token, verifier = sign(), CapabilityVerifier(SECRET)

    assert failed_check(token, verifier, tool="delete") == "tool"
    assert failed_check(token, verifier, arguments={}) == "arguments"
    assert failed_check(token, verifier, run_id="run-2") == "run"
    assert verify(token, verifier) == CLAIMS
    assert failed_check(token, verifier) == "used"


def test_it_holds_until_it_expires_by_the_wall_clock_and_a_little_longer() -> None:
    assert verify(sign(), now=NOW + 60) == CLAIMS
    assert verify(sign(), now=NOW + 62) == CLAIMS
    assert failed_check(sign(), now=NOW + 62.001) == "expiry"
    assert (
        failed_check(sign(), CapabilityVerifier(SECRET, leeway=0), now=NOW + 60.001)
        == "expiry"
    )
    assert (
        failed_check(sign(expires=1.0), CapabilityVerifier(SECRET), now=None)
        == "expiry"
    )


def test_a_secret_is_replaced_without_a_gap() -> None:
    old, new = CapabilitySigner(SECRET), CapabilitySigner(OTHER)
    for secrets in ([SECRET, OTHER], (OTHER, SECRET)):
        both = CapabilityVerifier(secrets)
        assert [verify(signer.sign(CLAIMS), both) for signer in (old, new)] == [
            CLAIMS,
            CLAIMS,
        ]

    assert failed_check(old.sign(CLAIMS), CapabilityVerifier(OTHER)) == "signature"


def test_what_is_signed_for_something_else_is_no_capability() -> None:
    elsewhere = CapabilitySigner(SECRET, salt="invoices").sign(CLAIMS)

    assert failed_check(elsewhere) == "signature"
    assert verify(elsewhere, CapabilityVerifier(SECRET, salt="invoices")) == CLAIMS


def changed(**changes: object) -> bytes:
    return json.dumps(
        payload_of(sign()) | changes, sort_keys=True, separators=(",", ":")
    ).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b"nonsense",
        b"\xff\xfe",
        b"[" * 5000,
        changed(more="x"),
        changed(expires="tomorrow"),
        changed(expires=math.nan),
        changed(expires=math.inf),
        changed(expires=1_800_000_060),
        changed(arguments_hash=""),
        changed(arguments_hash="0" * 64 + "\n"),
        changed(nonce=""),
        changed(tool=None),
        changed(tool="\ud800"),
        changed().replace(b",", b", "),
        changed().replace(b'{"', b'{"tool":"delete","', 1),
    ],
)
def test_what_is_well_signed_but_not_written_as_a_capability_is_none(
    raw: bytes,
) -> None:
    assert signed(changed()).count(".") == 1
    assert verify(signed(changed())) == CLAIMS  # the way of signing is the right one
    assert failed_check(signed(raw)) == "form"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.text(),
        st.from_regex(r"[A-Za-z0-9_-]{0,90}\.[A-Za-z0-9_-]{43}", fullmatch=True),
    ),
    st.booleans(),
)
@example("." * 10_000, False)
@example("é.", True)
def test_garbage_is_refused_and_breaks_nothing(garbage: str, in_front: bool) -> None:
    token = sign()
    assert failed_check(garbage) in ("form", "signature")
    if garbage:
        assert failed_check(garbage + token if in_front else token + garbage) in (
            "form",
            "signature",
        )


@pytest.mark.parametrize("token", [None, 5, b"a.b", ["a.b"]])
def test_what_is_no_text_is_no_token(token: object) -> None:
    assert failed_check(token) == "form"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [{"arguments_hash": ""}, {"expires": math.nan}, {"expires": math.inf}],
    ids=str,
)
def test_claims_that_nobody_could_verify_are_not_signed(
    changes: dict[str, object],
) -> None:
    with pytest.raises(
        CapabilityError,
        match=rf"claims with this {next(iter(changes))} cannot be signed",
    ):
        sign(**changes)


# --- once ---


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> NonceStore:
    return (
        MemoryNonces()
        if request.param == "memory"
        else SQLiteNonces(tmp_path / "used.db")
    )


def test_a_second_use_is_refused(store: NonceStore) -> None:
    token, verifier = sign(), CapabilityVerifier(SECRET, seen=store)

    assert verify(token, verifier) == CLAIMS
    assert [
        failed_check(token, verifier, now=now) for now in (NOW, NOW - 1000, NOW + 61)
    ] == ["used"] * 3


class Slow(str):
    """A nonce that takes its time, so that others come in between looking for it and adding it."""

    __slots__ = ()

    def __hash__(self) -> int:
        time.sleep(0.001)
        return super().__hash__()


def test_looking_for_a_nonce_and_adding_it_are_one_thing() -> None:
    store, barrier, won = MemoryNonces(), threading.Barrier(8), list[bool]()

    def use() -> None:
        barrier.wait()
        won.append(store.use(Slow("nonce"), NOW, NOW))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(won) == [False] * 7 + [True]


def test_of_eight_threads_one_gets_it(store: NonceStore) -> None:
    tokens, verifier, barrier = (
        [sign() for _ in range(10)],
        CapabilityVerifier(SECRET, seen=store),
        threading.Barrier(8),
    )
    checks: list[str] = []

    def use_all() -> None:
        for token in tokens:
            barrier.wait()
            try:
                verify(token, verifier)
                checks.append("won")
            except CapabilityError as error:
                checks.append(error.check)

    threads = [threading.Thread(target=use_all) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (checks.count("won"), checks.count("used"), len(checks)) == (10, 70, 80)


EXECUTOR = """
import sys
from loopwright.security import CapabilityVerifier, SQLiteNonces
from loopwright.errors import CapabilityError

verifier = CapabilityVerifier(sys.argv[1], seen=SQLiteNonces(sys.argv[2]))
print("ready", flush=True)
for token in sys.stdin.read().split():
    try:
        verifier.verify(token, tool="upload", arguments={"name": "a.txt", "size": 3}, now=float(sys.argv[3]))
        print(token)
    except CapabilityError as error:
        assert error.check == "used", error
"""


@pytest.mark.faults
def test_of_four_processes_one_gets_it(tmp_path: Path) -> None:
    tokens = [sign() for _ in range(25)]
    command = [
        sys.executable,
        "-c",
        EXECUTOR,
        SECRET.decode(),
        str(tmp_path / "used.db"),
        str(NOW),
    ]
    children = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:  # they wait for the end of their input, so all begin now
        assert child.stdin
        child.stdin.write("\n".join(tokens))
    for child in children:
        assert child.stdin
        child.stdin.close()
        child.stdin = None
    won = [child.communicate(timeout=60)[0].split() for child in children]

    assert [child.returncode for child in children] == [0, 0, 0, 0]
    assert sorted(token for tokens_of_one in won for token in tokens_of_one) == sorted(
        tokens
    )


def test_another_process_knows_later_what_was_used(tmp_path: Path) -> None:
    token = sign()
    first, second = (
        CapabilityVerifier(SECRET, seen=SQLiteNonces(tmp_path / "used.db"))
        for _ in range(2)
    )

    assert verify(token, first) == CLAIMS
    assert failed_check(token, second) == "used"


def test_a_nonce_is_on_the_disk_before_it_counts_whatever_the_default_of_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []

    class Hasty(sqlite3.Connection):
        """A connection as some systems make it, which tells how careful it was in the end."""

        careful = 0

        def close(self) -> None:
            self.careful = self.execute("PRAGMA synchronous").fetchone()[0]
            super().close()

    def connect(path: str, **options: Any) -> sqlite3.Connection:
        opened.append(Hasty(path, **options))
        opened[-1].execute("PRAGMA synchronous=NORMAL")
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", connect)
    SQLiteNonces(tmp_path / "used.db").use("nonce", 10.0, 1.0)

    assert [getattr(each, "careful", None) for each in opened] == [2, 2], "FULL"


def test_what_has_expired_long_ago_is_forgotten(tmp_path: Path) -> None:
    memory, sqlite = MemoryNonces(), SQLiteNonces(tmp_path / "used.db")
    for store in (memory, sqlite):
        assert store.use("a", NOW, NOW)
        assert not store.use(
            "a", NOW, NOW + NONCE_RETENTION
        )  # a clock that is set back within the hour does no harm
        assert store.use("b", NOW + NONCE_RETENTION + 2, NOW + NONCE_RETENTION + 1)
        assert store.use("a", NOW, NOW + NONCE_RETENTION + 1)

    assert len(memory) == 2


def test_what_there_is_no_room_to_remember_is_not_let_through() -> None:
    verifier = CapabilityVerifier(SECRET, seen=MemoryNonces(max_nonces=2))
    later = NOW + 62 + NONCE_RETENTION + 1

    assert [verify(sign(), verifier), verify(sign(), verifier)] == [CLAIMS, CLAIMS]
    assert failed_check(sign(), verifier) == "used"
    assert verify(sign(expires=later), verifier, now=later).expires == later


def test_a_store_that_cannot_answer_lets_nothing_through(tmp_path: Path) -> None:
    verifier = CapabilityVerifier(SECRET, seen=SQLiteNonces(tmp_path / "used.db"))
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "used.db").write_bytes(b"no database at all" * 100)

    assert failed_check(sign(), verifier) == "used"


# --- set-up ---


@pytest.mark.parametrize(
    "secret",
    [b"", "short", b"x" * 31, None, 5, [], [SECRET, b"short"], [None]],
    ids=str,
)
@pytest.mark.parametrize("make", [CapabilitySigner, CapabilityVerifier])
def test_a_secret_has_32_bytes(
    make: Callable[[object], object], secret: object
) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^secret: needs 32 bytes or more, random ones: secrets\.token_bytes\(32\)$",
    ):
        make(secret)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: CapabilitySigner(SECRET, salt=""),
            "salt: say what the capabilities are for",
        ),
        (
            lambda: CapabilityVerifier(SECRET, leeway=-1),
            "leeway: must be between 0 and 3600 seconds, got -1",
        ),
        (
            lambda: CapabilityVerifier(SECRET, leeway=math.nan),
            "leeway: must be between 0 and 3600 seconds, got nan",
        ),
        (lambda: MemoryNonces(0), "max_nonces: must be 1 or more, got 0"),
        (
            lambda: SQLiteNonces(":memory:"),
            "path: name a file; in one process alone, MemoryNonces() does the same",
        ),
        (
            lambda: SQLiteNonces("/nowhere/used.db"),
            "path: '/nowhere/used.db' cannot be used as a database: ",
        ),
    ],
)
def test_a_bad_option_is_named(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(problem)):
        make()


def test_without_itsdangerous_it_says_what_to_install() -> None:
    code = f"""
import sys
sys.modules["itsdangerous"] = None
from loopwright.security import CapabilitySigner
from loopwright.errors import ConfigError
try:
    CapabilitySigner({SECRET!r})
except ConfigError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )

    assert (done.stdout, done.stderr) == (
        "capabilities need itsdangerous: pip install 'loopwright[capabilities]'\n",
        "",
    )
