"""The key of an encrypted repository, and how its objects are named, compressed and encrypted.

An object's name is the SHA-256 of its content; with a passphrase it is an HMAC, so that a reader of the destination
recognises no file that it knows. Objects are compressed with zstd where that makes them smaller, and encrypted with
AES-256-GCM under a random key. That key is kept in the repository, encrypted by one that scrypt derives from the
passphrase.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets

import cramjam
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from .places import BackupError

PLAIN, ZSTD = b"\0", b"\1"
LEVEL = 3
NONCE_BYTES = 12
SCRYPT = {"n": 1 << 16, "r": 8, "p": 1}  # 64 MiB of memory, a quarter of a second


class Damaged(BackupError):
    """An object is not what was written: the disk or somebody has changed it, or another key has made it."""


class Sealer:
    """Names and packs objects; without a key they are checksummed only.

    `key` has 64 bytes: half of them encrypt, the others name.
    """

    def __init__(self, key: bytes | None = None):
        self._naming = key[32:] if key else None
        self._cipher = AESGCM(key[:32]) if key else None

    def name(self, data: bytes) -> str:
        """Return the name of the object with this content."""
        if self._naming is None:
            return hashlib.sha256(data).hexdigest()
        return hmac.new(self._naming, data, hashlib.sha256).hexdigest()

    def seal(self, name: str, data: bytes) -> bytes:
        """Return what is written. The name is authenticated with it: objects cannot be exchanged."""
        packed = bytes(cramjam.zstd.compress(data, LEVEL))
        text = ZSTD + packed if len(packed) < len(data) else PLAIN + data
        if self._cipher is None:
            return text
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text, name.encode())

    def open(self, name: str, stored: bytes) -> bytes:
        """Return the content of what was read. Raises Damaged."""
        try:
            if self._cipher is not None:
                stored = self._cipher.decrypt(stored[:NONCE_BYTES], stored[NONCE_BYTES:], name.encode())
            form, packed = stored[:1], stored[1:]
            return bytes(cramjam.zstd.decompress(packed)) if form == ZSTD else packed
        except (InvalidTag, cramjam.DecompressionError, ValueError) as problem:
            raise Damaged(f"{name} is damaged") from problem


# --- the passphrase --------------------------------------------------------------------------------------------------
def new_key(passphrase: str) -> tuple[bytes, dict]:
    """Return a new key, and what the repository keeps of it."""
    key, salt, nonce = secrets.token_bytes(64), os.urandom(16), os.urandom(NONCE_BYTES)
    wrapped = AESGCM(_derive(passphrase, salt, SCRYPT)).encrypt(nonce, key, None)
    texts = {"salt": salt, "nonce": nonce, "wrapped": wrapped}
    return key, {"kdf": "scrypt", **SCRYPT, **{name: base64.b64encode(value).decode() for name, value in texts.items()}}


def open_key(passphrase: str, kept: dict) -> bytes:
    """Return the key of a repository. Raises BackupError when it is another passphrase's."""
    salt, nonce, wrapped = (base64.b64decode(kept[name]) for name in ("salt", "nonce", "wrapped"))
    try:
        return AESGCM(_derive(passphrase, salt, {name: kept[name] for name in SCRYPT})).decrypt(nonce, wrapped, None)
    except InvalidTag:
        raise BackupError("the passphrase is not that of these backups") from None


def _derive(passphrase: str, salt: bytes, cost: dict) -> bytes:
    return Scrypt(salt=salt, length=32, **cost).derive(passphrase.encode())
