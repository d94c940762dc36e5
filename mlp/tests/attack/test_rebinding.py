"""Names that change what they mean: a connection goes to an address that was judged, whatever the name means later."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import pytest

SHIM = Path(__file__).parents[3] / "runners" / "shim"
OUTSIDE = "192.0.2.7"  # kept for documentation: nobody answers there
HERE = "127.0.0.1"


@pytest.fixture
def proxy(monkeypatch):
    monkeypatch.syspath_prepend(str(SHIM))
    sys.modules.pop("proxy", None)
    import proxy

    yield proxy
    sys.modules.pop("proxy", None)


class Resolver:
    """Resolves a name to the next answer each time it is asked, to the last one from then on."""

    def __init__(self, *answers: list[str]):
        self.answers, self.asked = list(answers), 0

    def __call__(self, _host, port, **_options) -> list[tuple]:
        addresses = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]


class Link(socket.socket):
    """A socket that notes where it was to connect; nobody answers."""

    tried: list[str] = []

    def connect(self, address: tuple) -> None:
        if self.type != socket.SOCK_STREAM:  # a look at the route to an address, which sends nothing
            return super().connect(address)
        self.tried.append(address[0])
        raise ConnectionRefusedError("refused")


@pytest.mark.parametrize(
    ("answers", "tried"),
    [
        ([[OUTSIDE], [HERE]], [OUTSIDE]),
        ([[OUTSIDE, HERE], [HERE]], [OUTSIDE]),
        ([[HERE], [OUTSIDE]], []),
        ([["169.254.169.254"], [HERE]], []),
    ],
)
def test_the_proxy_of_runs_connects_to_the_address_that_it_has_judged(proxy, monkeypatch, answers, tried):
    resolver, Link.tried = Resolver(*answers), []
    monkeypatch.setattr(proxy.socket, "getaddrinfo", resolver)
    monkeypatch.setattr(proxy.socket, "socket", Link)
    with pytest.raises(proxy.Refusal) as refusal:
        proxy.dial("rebinding.example", 80, time.monotonic() + 5)
    assert Link.tried == tried
    assert resolver.asked == 1
    assert refusal.value.status == (502 if tried else 403)
