"""The platform talks to its own NATS server only: another program that listens at the port is sent nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading

import pytest

from kernel import bus, nats_tls
from mlp.tests.patience import LIMIT_S

INFO = {"server_id": "I", "version": "2.12.0", "max_payload": 1 << 20, "headers": True, "nonce": "n" * 22}
GREETING = b"INFO " + json.dumps(INFO).encode() + b"\r\n"
HANDSHAKE = b"\x16\x03"


@pytest.fixture
def platform(tmp_path, settings):
    """The settings of a platform whose embedded server has been started before, and is not there now."""
    settings.MLP_ROOT = tmp_path
    settings.EMBEDDED = {**settings.EMBEDDED, "nats": True}
    nats_tls.ensure()
    return settings


def identity_of_another(folder, settings) -> ssl.SSLContext:
    """Return the identity of a server with the right name and another key."""
    root, settings.MLP_ROOT = settings.MLP_ROOT, folder
    nats_tls.ensure()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(nats_tls.certificate_path(), nats_tls.key_path())
    settings.MLP_ROOT = root
    return context


def sent_to(identity: ssl.SSLContext | None, settings, connections: int = 3) -> list[bytes]:
    """Return what each connection of the platform sends to an impostor that greets it as NATS would."""
    told: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings.NATS_URL = f"nats://127.0.0.1:{listener.getsockname()[1]}"

        def listen():
            while len(told) < connections:
                link, _ = listener.accept()
                got = b""
                with contextlib.suppress(OSError):
                    link.settimeout(LIMIT_S)
                    link = identity.wrap_socket(link, server_side=True) if identity else link
                    link.sendall(GREETING)
                    got = link.recv(4096)
                link.close()
                told.append(got)

        impostor = threading.Thread(target=listen, daemon=True)
        impostor.start()

        async def platform_connects():
            trying = asyncio.create_task(bus.connect())
            await asyncio.to_thread(impostor.join, LIMIT_S)
            assert not trying.done()  # it goes on trying
            trying.cancel()

        asyncio.run(platform_connects())
    assert len(told) == connections
    return told


def test_who_listens_in_place_of_the_server_is_sent_no_credentials(platform):
    for sent in sent_to(None, platform):
        assert sent.startswith(HANDSHAKE)
        assert b"CONNECT" not in sent


def test_a_server_with_the_right_name_and_another_key_is_sent_nothing(platform, tmp_path):
    assert sent_to(identity_of_another(tmp_path / "other", platform), platform) == [b""] * 3


def test_an_incomplete_pair_is_replaced_and_a_good_one_kept(platform):
    before = nats_tls.certificate_path().read_bytes()
    nats_tls.ensure()
    assert nats_tls.certificate_path().read_bytes() == before
    nats_tls.key_path().unlink()
    nats_tls.ensure()
    assert nats_tls.certificate_path().read_bytes() != before
    nats_tls.context()
    assert {path.stat().st_mode & 0o777 for path in (nats_tls.key_path(), nats_tls.certificate_path())} == {0o600}
