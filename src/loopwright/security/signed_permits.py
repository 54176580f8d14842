"""Capabilities: what policy let through, signed for an executor in another process, and verified there exactly once.

    run:      signer.sign(ctx.claims)  ->  token, sent along with the arguments
    executor: verifier.verify(token, tool=..., arguments=...)  ->  the claims, or a CapabilityError

A token is `<claims as canonical JSON, base64url>.<HMAC-SHA-256, base64url>`, made with itsdangerous. It is readable by
whoever has it: the arguments are in it as a hash only.
"""

import base64
import contextlib
import dataclasses
import heapq
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import CapabilityError, ConfigError
from ..messages import JsonObject, arguments_hash, canonical_json
from .permit_claims import Claims

if TYPE_CHECKING:
    from itsdangerous import Signer

Secret: TypeAlias = str | bytes
SALT = "loopwright.capability.1"
LEAST_SECRET = 32  # bytes: as many as the digest has
TOKEN = re.compile(r"([A-Za-z0-9_-]{1,8192})\.([A-Za-z0-9_-]{43})")
KEPT = 3600.0
"""Seconds that a nonce is remembered beyond its time, should the clock be set back."""

Hash: TypeAlias = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]


class _Signed(BaseModel):
    """What is signed: the claims, and a nonce that makes every token another."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False
    )
    run_id: str
    key: str
    call_id: str
    tool: str
    arguments_hash: Hash
    policy_version: str
    expires: float
    nonce: Annotated[str, Field(min_length=16, max_length=64)]


class NonceStore(Protocol):
    """Remembers which tokens were used. Safe to be called from several threads."""

    def use(self, nonce: str, until: float, now: float) -> bool:
        """Take a nonce: True the first time, False ever after, at least `until` (wall clock, as is `now`).

        Of several callers at once exactly one gets True. Raises `CapabilityError("used")` if it cannot say.
        """
        ...


class MemoryNonces:
    """Nonces of one process.

    Args:
        most: how many are remembered at a time. When there is no room for another, no token is accepted.
    """

    def __init__(self, most: int = 100_000) -> None:
        if most < 1:
            raise ConfigError(f"most: must be 1 or more, got {most!r}")
        self._most = most
        self._seen: set[str] = set()
        self._ends: list[tuple[float, str]] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._seen)

    def use(self, nonce: str, until: float, now: float) -> bool:
        """See `NonceStore`."""
        with self._lock:
            while self._ends and self._ends[0][0] + KEPT < now:
                self._seen.discard(heapq.heappop(self._ends)[1])
            if nonce in self._seen:
                return False
            if len(self._seen) >= self._most:
                raise CapabilityError(
                    "used",
                    "too many capabilities were used of late: make `most` larger",
                )
            self._seen.add(nonce)
            heapq.heappush(self._ends, (until, nonce))
            return True


class SQLiteNonces:
    """Nonces of all processes of one machine that name the same file, and of those that come after them.

    Args:
        path: of a database of its own; it is made if it is not there.
        timeout: seconds to wait for another process that writes.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 10.0) -> None:
        self._path, self._timeout = os.fspath(path), timeout
        if not self._path or self._path == ":memory:":
            raise ConfigError(
                "path: name a file; in one process alone, MemoryNonces() does the same"
            )
        try:
            with self._open() as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS used (nonce TEXT PRIMARY KEY, until REAL) WITHOUT ROWID"
                )
                connection.execute(
                    "CREATE INDEX IF NOT EXISTS used_until ON used (until)"
                )
        except sqlite3.Error as error:
            raise ConfigError(
                f"path: {self._path!r} cannot be used as a database: {error}"
            ) from error

    def use(self, nonce: str, until: float, now: float) -> bool:
        """See `NonceStore`."""
        try:
            with self._open() as connection:
                connection.execute("DELETE FROM used WHERE until < ?", (now - KEPT,))
                taken = connection.execute(
                    "INSERT INTO used VALUES (?, ?) ON CONFLICT DO NOTHING",
                    (nonce, until),
                )
                return taken.rowcount == 1
        except sqlite3.Error as error:
            raise CapabilityError(
                "used", "it cannot be told whether the capability was used already"
            ) from error

    @contextlib.contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        """A connection for one use: it can be shared by no threads, and a forked process must not have one at all."""
        with contextlib.closing(
            sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None)
        ) as connection:
            connection.execute(
                "PRAGMA synchronous=FULL"
            )  # else a nonce may be forgotten when the power fails
            yield connection


class CapabilitySigner:
    """Signs what policy let through.

    Args:
        secret: 32 bytes or more, random: `secrets.token_bytes(32)`. The executor has the same.
        salt: what the capabilities are for, where one secret serves several ends; the executor says the same.

    Needs itsdangerous: `pip install 'loopwright[capabilities]'`.
    """

    def __init__(self, secret: Secret, *, salt: str = SALT) -> None:
        self._signer = _signer(secret, salt)

    def sign(self, claims: Claims) -> str:
        """The claims as a token, another one each time; raises `CapabilityError` for claims that cannot be signed."""
        try:
            signed = _Signed(
                **dataclasses.asdict(claims), nonce=secrets.token_urlsafe(16)
            )
        except ValidationError as error:
            field = error.errors(include_input=False)[0]["loc"][0]
            raise CapabilityError(
                "form", f"claims with this {field} cannot be signed"
            ) from None
        return self._signer.sign(_written(signed)).decode()


class CapabilityVerifier:
    """Verifies capabilities in front of whatever carries the calls out.

    Args:
        secret: the signer's, or several: while a secret is being replaced, the old and the new one hold.
        salt: the signer's.
        seen: which capabilities were used: `MemoryNonces()` for one process, `SQLiteNonces(path)` for several.
        leeway: seconds that the clocks of the two machines may differ.

    Needs itsdangerous: `pip install 'loopwright[capabilities]'`.
    """

    def __init__(
        self,
        secret: Secret | Sequence[Secret],
        *,
        salt: str = SALT,
        seen: NonceStore | None = None,
        leeway: float = 2.0,
    ) -> None:
        if not 0 <= leeway <= KEPT:
            raise ConfigError(
                f"leeway: must be between 0 and {KEPT:g} seconds, got {leeway!r}"
            )
        self._signer = _signer(secret, salt)
        self._seen: NonceStore = MemoryNonces() if seen is None else seen
        self._leeway = leeway

    def verify(
        self,
        token: str,
        *,
        tool: str,
        arguments: JsonObject,
        run_id: str | None = None,
        now: float | None = None,
    ) -> Claims:
        """The claims of a token that allows exactly this call; from then on it allows none.

        Args:
            token: what `CapabilitySigner.sign` gave.
            tool: the tool that is about to run.
            arguments: those that it is about to run with.
            run_id: the run that it has to be of, if that is known.
            now: wall clock, seconds since the Unix epoch; the machine's own without it.

        Raises:
            CapabilityError: with the `check` that failed: "form", "signature", "expiry", "tool", "arguments", "run"
                or "used", tried in this order. A token is used up only if all of them hold.
        """
        claims, nonce = self._read(token)
        now = time.time() if now is None else now
        until = claims.expires + self._leeway
        if not now <= until:  # NaN is no time
            raise CapabilityError("expiry", "the capability has expired")
        for check, other, given, signed in (
            ("tool", "another tool", tool, claims.tool),
            (
                "arguments",
                "other arguments",
                arguments_hash(arguments),
                claims.arguments_hash,
            ),
            ("run", "another run", run_id, claims.run_id),
        ):
            if not (check == "run" and given is None) and not _same(given, signed):
                raise CapabilityError(check, f"the capability is for {other}")
        if not self._seen.use(nonce, until, now):
            raise CapabilityError("used", "the capability was used already")
        return claims

    def _read(self, token: object) -> tuple[Claims, str]:
        parts = TOKEN.fullmatch(token) if isinstance(token, str) else None
        if parts is None or _base64(_bytes(parts[2])) != parts[2]:
            raise CapabilityError("form", "this is no capability")
        if not self._signer.validate(parts[0]):
            raise CapabilityError(
                "signature",
                "the capability was not signed with this secret, or was changed since",
            )
        try:
            signed = _Signed.model_validate_json(_bytes(parts[1]))
        except ValueError:
            raise CapabilityError("form", "this is signed, but no capability") from None
        if (
            _written(signed) != parts[1]
        ):  # one capability can be written in one way only
            raise CapabilityError(
                "form", "this is signed, but not written as a capability is"
            )
        return Claims(**signed.model_dump(exclude={"nonce"})), signed.nonce


def _same(given: object, signed: str) -> bool:
    return isinstance(given, str) and compare_digest(
        given.encode(errors="surrogatepass"), signed.encode()
    )


def _signer(secret: Secret | Sequence[Secret], salt: str) -> "Signer":
    """The one algorithm: HMAC-SHA-256, with keys that HMAC-SHA-256 derives from the secrets and the salt."""
    try:
        from itsdangerous import Signer  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConfigError(
            "capabilities need itsdangerous: pip install 'loopwright[capabilities]'"
        ) from error
    keys = _keys(secret)
    if not keys or any(len(key) < LEAST_SECRET for key in keys):
        raise ConfigError(
            f"secret: needs {LEAST_SECRET} bytes or more, random ones: secrets.token_bytes(32)"
        )
    if not salt:
        raise ConfigError("salt: say what the capabilities are for")
    return Signer(keys, salt=salt, key_derivation="hmac", digest_method=sha256)


def _keys(secret: object) -> list[bytes]:
    """One secret or several as bytes; what is none, such as a variable of the environment that is not set, as b""."""
    if isinstance(secret, (list, tuple, set, frozenset)):
        return [key for each in cast("Iterable[object]", secret) for key in _keys(each)]
    return [
        secret.encode()
        if isinstance(secret, str)
        else secret
        if isinstance(secret, bytes)
        else b""
    ]


def _written(signed: _Signed) -> str:
    return _base64(canonical_json(signed.model_dump()))


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise CapabilityError("form", "this is no capability") from None
