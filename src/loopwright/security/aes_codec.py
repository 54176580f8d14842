"""AESCodec: payloads of a journal encrypted with AES-256-GCM, by the package cryptography."""

import base64
import contextlib
import hmac
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import CodecError, ConfigError
from ..events.payloads import PayloadPlace
from .secret_store import SecretStore
from .signatures import load_ciphers

KEY_BYTES = 32
FORMAT, CHECK_BYTES, NONCE_BYTES = 1, 4, 12
MAX_KEY_ID = 64
MAX_CACHED = 1_024
"""Runs whose keys are kept in memory."""


class KeySource(Protocol):
    """Gives a key in base64 by its name: `SecretStore`, or a client of a key manager."""

    def get(self, name: str, /) -> str:
        """Return the key; raise `ConfigError` if there is none."""
        ...


class AESCodec:
    """Encrypts payloads with AES-256-GCM (NIST SP 800-38D); what is stored is bound to its place in its run.

    Each run is encrypted with a key of its own, which is derived from the one that is named here (HKDF-Expand of RFC 5869
    with SHA-256), so that random nonces suffice for 2**32 entries of one run. Keys are read when the codec is made.

    Args:
        keys: the keys by name, each its 32 bytes or those in base64. An old key stays here for as long as there are runs
            that were written with it.
        current: the name of the key with which is encrypted.
        tenants: the name of the key for each tenant that has one of its own; the others have the current one.

    Raises `ConfigError` for a key that does not fit, a name that no key has, or without the extra `encryption`.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes | str],
        *,
        current: str,
        tenants: Mapping[str, str] | None = None,
    ) -> None:
        self._aead = load_ciphers().AESGCM
        self._keys = {
            name: _read_key(place, name, key)
            for place, (name, key) in enumerate(keys.items(), 1)
        }
        self._current, self._tenants = current, dict(tenants or {})
        _check_names(self._keys, [("current", current)])
        _check_names(self._keys, [(f"tenants[{one!r}]", name) for one, name in self._tenants.items()])  # fmt: skip
        self._heads = {name: _build_head(name, key) for name, key in self._keys.items()}
        self._ciphers: dict[tuple[str, str], Any] = {}

    @property
    def name(self) -> str:
        """Return how the codec is called where a process lacks it: by the name of its key, never the key."""
        return f"AESCodec with key {self._current!r}"

    @classmethod
    def from_store(
        cls,
        store: KeySource,
        names: Iterable[str],
        *,
        current: str,
        tenants: Mapping[str, str] | None = None,
    ) -> "AESCodec":
        """Return a codec with keys from a store of secrets, each there under its name."""
        keys = {name: store.get(name) for name in names}
        return cls(keys, current=current, tenants=tenants)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "AESCodec":
        """Return a codec whose keys a TOML file names, each by the source of a `SecretStore`, never by itself.

        The file has `current = "NAME"`, a table `[keys]` with `NAME = "env:VARIABLE"` and the like, and maybe a table
        `[tenants]` with `TENANT = "NAME"`. Raises `ConfigError`, which names the file.
        """
        try:
            content = Path(path).read_text(encoding="utf-8")
            found = _KeyTables.model_validate(tomllib.loads(content))
            for place, name in enumerate(found.keys, 1):
                _check_name(place, name)
            store = SecretStore(found.keys)
            return cls.from_store(
                store, found.keys, current=found.current, tenants=found.tenants
            )
        except OSError as error:
            problem = error.strerror or "cannot be read"
        except ValidationError as error:
            detail = error.errors(include_url=False, include_context=False)[0]
            problem = f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
        except (ValueError, ConfigError) as error:
            problem = str(error)
        raise ConfigError(f"key file {os.fspath(path)!r}: {problem}")

    @staticmethod
    def generate_key() -> str:
        """Return a new key in base64, for a secrets manager."""
        return base64.b64encode(os.urandom(KEY_BYTES)).decode()

    def encode(self, payload: bytes, place: PayloadPlace) -> bytes:
        """Return a payload encrypted with the key of its tenant."""
        name = self._tenants.get(place.tenant, self._current)
        head, nonce = self._heads[name], os.urandom(NONCE_BYTES)
        cipher = self._find_cipher(name, place.run_id)
        encrypted: bytes = cipher.encrypt(nonce, payload, head + _encode_place(place))
        return head + nonce + encrypted

    def decode(self, encoded: bytes, place: PayloadPlace) -> bytes:
        """Return a payload; raise `CodecError` if its key is missing or another one, or if it was changed or moved."""
        name, head = _read_head(encoded, place)
        if name not in self._keys:
            known = ", ".join(self._keys)
            raise CodecError(
                f"{place}: is encrypted with key {name!r}, which the codec does not have; it has {known}; add that key"
            )
        if head != self._heads[name]:
            raise CodecError(
                f"{place}: is encrypted with another key than the one that the codec has as {name!r}; "
                f"give it the key that was {name!r} then"
            )
        nonce_end = len(head) + NONCE_BYTES
        cipher = self._find_cipher(name, place.run_id)
        try:
            payload: bytes = cipher.decrypt(
                encoded[len(head) : nonce_end],
                encoded[nonce_end:],
                head + _encode_place(place),
            )
        except Exception:  # noqa: BLE001 - InvalidTag, or whatever a cut text raises
            raise CodecError(
                f"{place}: does not decrypt with key {name!r}: it was changed, or is from another place"
            ) from None
        return payload

    def _find_cipher(self, name: str, run_id: str) -> Any:
        """Return the cipher of a run."""
        found = self._ciphers.get((name, run_id))
        if found is None:
            if len(self._ciphers) >= MAX_CACHED:
                self._ciphers.clear()
            found = self._aead(_derive(self._keys[name], b"run " + run_id.encode()))
            self._ciphers[name, run_id] = found
        return found

    def __repr__(self) -> str:
        return f"AESCodec({', '.join(self._keys)}; current {self._current})"


class _KeyTables(BaseModel):
    """The content of a key file."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    current: str
    keys: dict[str, str]
    tenants: dict[str, str] = {}


def _read_key(place: int, name: str, key: bytes | str) -> bytes:
    """Return a key; errors name it by its place, since a swapped name is the key itself."""
    _check_name(place, name)
    raw = key if isinstance(key, bytes) else _decode_key(key)
    if len(raw) != KEY_BYTES:
        raise ConfigError(
            f"keys: key {place}: must be {KEY_BYTES} bytes, or those in base64, got {len(raw)} bytes; "
            "make one with AESCodec.generate_key()"
        )
    return raw


def _check_name(place: int, name: str) -> None:
    """Raise `ConfigError` for a name that no key may have, or that is a key, without showing it."""
    if not name.isprintable() or not 0 < len(name.encode()) <= MAX_KEY_ID:
        raise ConfigError(
            f"keys: name {place}: must be printable, of at most {MAX_KEY_ID} bytes, got {len(name.encode())} bytes"
        )
    if len(_decode_key(name)) == KEY_BYTES:
        raise ConfigError(
            f"keys: name {place}: looks like a key itself; write the name first, and then the key"
        )


def _decode_key(text: object) -> bytes:
    """Return the bytes of a text in base64; none for anything else."""
    with contextlib.suppress(ValueError):
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    return b""


def _check_names(keys: Mapping[str, bytes], named: Iterable[tuple[str, str]]) -> None:
    for field, name in named:
        if name not in keys:
            known = ", ".join(keys) or "none"
            is_key = len(_decode_key(name)) == KEY_BYTES
            shown = "of that name, which is a key itself" if is_key else repr(name)
            raise ConfigError(f"{field}: there is no key {shown}; there are: {known}")


def _read_head(encoded: bytes, place: PayloadPlace) -> tuple[str, bytes]:
    """Return the name of the key, and all that stands in front of the nonce."""
    if len(encoded) < 2 or encoded[0] != FORMAT:
        raise CodecError(
            f"{place}: was not encrypted by AESCodec; open the journal with the codec that wrote it"
        )
    end = 2 + encoded[1]
    return encoded[2:end].decode("utf-8", "replace"), encoded[: end + CHECK_BYTES]


def _encode_place(place: PayloadPlace) -> bytes:
    """Return run and place so that no two places are equal."""
    run_id = place.run_id.encode()
    return b"%d:" % len(run_id) + run_id + place.name.encode()


def _derive(key: bytes, info: bytes) -> bytes:
    """Return 32 bytes of HKDF-Expand (RFC 5869)."""
    return hmac.digest(key, b"loopwright " + info + b"\x01", "sha256")


def _build_head(name: str, key: bytes) -> bytes:
    """Return what stands in front of all that is encrypted with a key.

    Its last bytes tell another key of the same name from a changed payload.
    """
    key_id = name.encode()
    check = _derive(key, b"check value")[:CHECK_BYTES]
    return bytes((FORMAT, len(key_id))) + key_id + check
