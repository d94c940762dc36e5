"""No tracked file holds a secret, and the scan would find one."""

from __future__ import annotations

import base64
import os

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from nkeys import PREFIX_BYTE_USER, encode_seed

from accounts.tokens import signature
from tools import plain_secrets

RANDOM = base64.urlsafe_b64encode(bytes(range(7, 250, 3))).decode().rstrip("=")


def planted() -> dict[str, str]:
    """Return a line for each form, put together here so that this file has none."""
    return {
        "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
        "a token of this platform": f"token: mlp_u1_{signature('token', 'user', 1, 'x')}",
        "a seed of NATS": encode_seed(os.urandom(32), PREFIX_BYTE_USER).decode(),
        "an AWS key": "AKIA" + "Q3EGRXJ7ZB2MKD5T",
        "a GitHub token": "ghp_" + RANDOM[:36].replace("-", "x").replace("_", "y"),
        "a GitLab token": "glpat-" + RANDOM[:20],
        "a PyPI token": "pypi-" + "AgEI" + RANDOM[:60],
        "a Slack token": "xoxb-" + "123456789012-abcdef",
        "a Google key": "AIza" + RANDOM[:35],
        "a Stripe key": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "a key of OpenAI or Anthropic": "sk-ant-" + RANDOM[:40],
        "a JSON web token": ".".join(("eyJ" + RANDOM[:15], "eyJ" + RANDOM[:30], RANDOM[:20])),
        "a hash of a password": PBKDF2PasswordHasher().encode("word", "salt" * 6, 1000),
        "a random value with the name of a secret": f'DB_PASSWORD = "{RANDOM[:32]}"',
    }


def test_no_tracked_file_holds_a_secret():
    files = plain_secrets.tracked()
    assert len(files) > 500
    assert plain_secrets.findings(files) == []


@pytest.mark.parametrize("form", [*plain_secrets.FORMS, "a random value with the name of a secret"])
def test_each_form_is_found_and_not_repeated(form, tmp_path, monkeypatch):
    line = planted()[form]
    monkeypatch.setattr(plain_secrets, "BASE", tmp_path)
    file = tmp_path / "notes.txt"
    file.write_text(f"first line\nvalue = {line} # and more\n")
    assert plain_secrets.findings([file]) == [f"notes.txt:2: {form}"]
    file.write_text(f"{line}  # {plain_secrets.EXCUSED}\n")
    assert plain_secrets.findings([file]) == []


@pytest.mark.parametrize(
    "line",
    [
        "password = request.POST.get('password', '')", "secret: the key that tokens and sessions are derived from",
        'PASSWORD = "correct horse battery"', "api_key = settings.SOME_LONG_NAME_OF_A_SETTING", 'SECRET = "x" * 64',
        'MLP_ADMIN_PASSWORD=$(cat "$MLP_ROOT/admin-password")', "password_validation.MinimumLengthValidator12345678",
    ],
)  # fmt: skip
def test_ordinary_lines_are_no_findings(line):
    assert list(plain_secrets.secrets_in(line)) == []


def test_binary_files_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_secrets, "BASE", tmp_path)
    file = tmp_path / "image.png"
    file.write_bytes(b"\0" + planted()["an AWS key"].encode())
    assert plain_secrets.findings([file]) == []
