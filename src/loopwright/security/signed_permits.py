"""Signed permits: calls that policy allowed, signed for an executor in another process, verified
there exactly once.

    run:      signer.sign(ctx.claims)  ->  token, sent along with the arguments
    executor: verifier.verify(token, tool=..., arguments=...)  ->  the claims, or a CapabilityError

A token is `<claims as canonical JSON, base64url>.<HMAC-SHA-256, base64url>`, made with
itsdangerous. Everyone who has it can read it: the arguments are in it as a hash only.
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
from ..messages import JsonObject, canonical_json, hash_arguments
from .permit_claims import Claims

if TYPE_CHECKING:
    from itsdangerous import Signer

Secret: TypeAlias = str | bytes
SALT = "loopwright.capability.1"
MIN_SECRET_BYTES = 32  # bytes: as many as the digest has
TOKEN = re.compile(r"([A-Za-z0-9_-]{1,8192})\.([A-Za-z0-9_-]{43})")
NONCE_RETENTION = 3600.0
"""Seconds that a nonce is remembered after it has expired, in case the clock is set back."""

Hash: TypeAlias = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]


class _Signed(BaseModel):
    """The signed content: the claims, and a nonce that makes every token unique."""

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
    """Remembers which tokens were used; safe to call from several threads."""

    def use(self, nonce: str, until: float, now: float) -> bool:
        """Use a nonce: return True the first time, False from then on, at least `until` (wall
        clock, as is `now`).

        Of several concurrent callers exactly one gets True. Raises `CapabilityError("used")` if it
        cannot say.
        """
        ...


class MemoryNonces:
    """Remembers the nonces of one process.

    Args:
        max_nonces: how many are remembered at a time. When there is no room for another, no token
            is accepted.
    """

    def __init__(self, max_nonces: int = 100_000) -> None:
        if max_nonces < 1:
            raise ConfigError(f"max_nonces: must be 1 or more, got {max_nonces!r}")
        self._max_nonces = max_nonces
        self._seen: set[str] = set()
        self._ends: list[tuple[float, str]] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._seen)

    def use(self, nonce: str, until: float, now: float) -> bool:
        """See `NonceStore`."""
        with self._lock:
            while self._ends and self._ends[0][0] + NONCE_RETENTION < now:
                self._seen.discard(heapq.heappop(self._ends)[1])
            if nonce in self._seen:
                return False
            if len(self._seen) >= self._max_nonces:
                raise CapabilityError(
                    "used",
                    "too many capabilities were used recently: make `max_nonces` larger",
                )
            self._seen.add(nonce)
            heapq.heappush(self._ends, (until, nonce))
            return True


class SQLiteNonces:
    """Remembers the nonces of all processes of one machine that name the same file, also after they
    have ended.

    Args:
        path: of a database for nonces alone; it is created if it does not exist.
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
                connection.execute(
                    "DELETE FROM used WHERE until < ?", (now - NONCE_RETENTION,)
                )
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
        """Open a connection for one use: threads cannot share one, and a forked process must not
        inherit one.
        """
        with contextlib.closing(
            sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None)
        ) as connection:
            connection.execute(
                "PRAGMA synchronous=FULL"
            )  # without it a nonce may be forgotten when the power fails
            yield connection


class CapabilitySigner:
    """Signs calls that policy allowed.

    Args:
        secret: 32 bytes or more, random: `secrets.token_bytes(32)`. The executor has the same.
        salt: the purpose of the capabilities, where one secret serves several; the executor has the
            same.

    Needs itsdangerous: `pip install 'loopwright[capabilities]'`.
    """

    def __init__(self, secret: Secret, *, salt: str = SALT) -> None:
        self._signer = _build_signer(secret, salt)

    def sign(self, claims: Claims) -> str:
        """Return the claims as a token, unique each time; raise `CapabilityError` for claims that
        cannot be signed.
        """
        try:
            signed = _Signed(
                **dataclasses.asdict(claims), nonce=secrets.token_urlsafe(16)
            )
        except ValidationError as error:
            field = error.errors(include_input=False)[0]["loc"][0]
            raise CapabilityError(
                "form", f"claims with this {field} cannot be signed"
            ) from None
        return self._signer.sign(_encode(signed)).decode()


class CapabilityVerifier:
    """Verifies capabilities before calls are executed.

    Args:
        secret: the signer's, or several: while a secret is being replaced, the old and the new one
            are valid.
        salt: the signer's.
        seen: which capabilities were used: `MemoryNonces()` for one process, `SQLiteNonces(path)`
            for several.
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
        if not 0 <= leeway <= NONCE_RETENTION:
            raise ConfigError(
                f"leeway: must be between 0 and {NONCE_RETENTION:g} seconds, got {leeway!r}"
            )
        self._signer = _build_signer(secret, salt)
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
        """Return the claims of a token that allows exactly this call, and use the token up.

        Args:
            token: the result of `CapabilitySigner.sign`.
            tool: the tool that is about to run.
            arguments: those that it is about to run with.
            run_id: the run that the call must belong to, if that is known.
            now: wall clock, seconds since the Unix epoch; by default that of the machine.

        Raises:
            CapabilityError: with the `check` that failed: "form", "signature", "expiry", "tool",
                "arguments", "run" or "used", tried in this order. A token is used up only if all of
                them hold.
        """
        claims, nonce = self._read(token)
        now = time.time() if now is None else now
        until = claims.expires + self._leeway
        if not now <= until:  # NaN is not a time
            raise CapabilityError("expiry", "the capability has expired")
        hashed = hash_arguments(arguments)
        _check_claim("tool", "another tool", tool, claims.tool)
        _check_claim("arguments", "other arguments", hashed, claims.arguments_hash)
        if run_id is not None:
            _check_claim("run", "another run", run_id, claims.run_id)
        if not self._seen.use(nonce, until, now):
            raise CapabilityError("used", "the capability was used already")
        return claims

    def _read(self, token: object) -> tuple[Claims, str]:
        parts = TOKEN.fullmatch(token) if isinstance(token, str) else None
        if parts is None or _encode_base64(_decode_base64(parts[2])) != parts[2]:
            raise CapabilityError("form", "this is not a capability")
        if not self._signer.validate(parts[0]):
            raise CapabilityError(
                "signature",
                "the capability was not signed with this secret, or was changed since",
            )
        try:
            signed = _Signed.model_validate_json(_decode_base64(parts[1]))
        except ValueError:
            raise CapabilityError(
                "form", "this is signed, but not a capability"
            ) from None
        # one capability can be written in one way only
        if _encode(signed) != parts[1]:
            raise CapabilityError(
                "form", "this is signed, but not written as a capability is"
            )
        return Claims(**signed.model_dump(exclude={"nonce"})), signed.nonce


def _check_claim(check: str, other: str, given: object, signed: str) -> None:
    """Raise `CapabilityError` unless a value is the signed one."""
    if not _is_same(given, signed):
        raise CapabilityError(check, f"the capability is for {other}")


def _is_same(given: object, signed: str) -> bool:
    """Compare two texts in a time that says nothing about them."""
    if not isinstance(given, str):
        return False
    return compare_digest(given.encode(errors="surrogatepass"), signed.encode())


def _build_signer(secret: Secret | Sequence[Secret], salt: str) -> "Signer":
    """Return a signer with the one algorithm: HMAC-SHA-256, with keys that it derives from the
    secrets and the salt.
    """
    try:
        from itsdangerous import Signer  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConfigError(
            "capabilities need itsdangerous: pip install 'loopwright[capabilities]'"
        ) from error
    keys = _read_keys(secret)
    if not keys or any(len(key) < MIN_SECRET_BYTES for key in keys):
        raise ConfigError(
            f"secret: needs {MIN_SECRET_BYTES} bytes or more, random ones: secrets.token_bytes(32)"
        )
    if not salt:
        raise ConfigError("salt: say what the capabilities are for")
    return Signer(keys, salt=salt, key_derivation="hmac", digest_method=sha256)


def _read_keys(secret: object) -> list[bytes]:
    """Return one secret or several as bytes; b"" for other values, such as a missing environment
    variable.
    """
    if isinstance(secret, (list, tuple, set, frozenset)):
        return [
            key for each in cast("Iterable[object]", secret) for key in _read_keys(each)
        ]
    if isinstance(secret, str):
        return [secret.encode()]
    return [secret if isinstance(secret, bytes) else b""]


def _encode(signed: _Signed) -> str:
    return _encode_base64(canonical_json(signed.model_dump()))


def _encode_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode_base64(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise CapabilityError("form", "this is not a capability") from None
