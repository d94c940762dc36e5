"""Secrets that the database keeps encrypted, because the platform has to read them again.

The key is derived from MLP_SECRET_KEY and the purpose, so a text that was sealed for one purpose cannot be opened for
another. Fernet of `cryptography` encrypts and authenticates. A text without PREFIX was stored by an earlier release and
is returned as it is.
"""

from __future__ import annotations

import base64

from django.conf import settings

from .errors import Refused
from .messages import Message

PREFIX = "sealed:v1:"


class Unreadable(Refused):
    """The text was sealed with another key, or has been changed."""

    def __init__(self, field: str):
        problem = Message("cannot be decrypted, because MLP_SECRET_KEY has changed; set it again")
        super().__init__(problem, field=field)


def seal(text: str, purpose: str) -> str:
    """Return the text encrypted; an empty one stays empty."""
    return PREFIX + _cipher(purpose).encrypt(text.encode()).decode() if text else ""


def unseal(stored: str, purpose: str, field: str = "secret") -> str:
    """Return the text that was sealed. Raises Unreadable, which names the field."""
    from cryptography.fernet import InvalidToken

    if not stored.startswith(PREFIX):
        return stored
    try:
        return _cipher(purpose).decrypt(stored.removeprefix(PREFIX).encode()).decode()
    except InvalidToken:
        raise Unreadable(field) from None


def _cipher(purpose: str):
    from cryptography.fernet import Fernet  # imported where a secret is used: few processes need it
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derivation = HKDF(hashes.SHA256(), 32, salt=None, info=f"mlp.sealing.{purpose}".encode())
    return Fernet(base64.urlsafe_b64encode(derivation.derive(settings.SECRET_KEY.encode())))
