"""`python -m mlp.websockets …`: Daphne, with a bound on what it keeps for a browser that does not read.

Daphne takes whatever an application sends and keeps it until the other side has read it: a stalled browser on a busy
job would fill the memory. Here such a connection is cut; when the browser is back it connects anew and is sent the
history. Everything else is Daphne's own (https://github.com/django/daphne); run as part `websockets`.
"""

from __future__ import annotations

import logging

from daphne.cli import CommandLineInterface
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol

log = logging.getLogger(__name__)

MOST_KEPT = 4 << 20  # bytes beyond the socket's own buffers


class BoundedProtocol(WebSocketProtocol):
    """Told by the transport when its buffer is full (`pauseProducing`) and when it is empty again."""

    full = False
    kept = 0

    def onOpen(self):
        self.unregisterProducer()  # the request's, which has ended with the handshake
        self.registerProducer(self, True)
        super().onOpen()

    def pauseProducing(self):  # told again with each write while it is so
        self.full = True

    def resumeProducing(self):
        self.full, self.kept = False, 0

    def stopProducing(self):
        """The connection is gone; Daphne hears of it by itself."""

    def serverSend(self, content, binary=False):
        if self.full:
            self.kept += len(content)
            if self.kept > MOST_KEPT:
                log.warning("websocket of %s: it does not read what it is sent; cut", self.client_addr)
                self.transport.abortConnection()
                return
        super().serverSend(content, binary)


def main() -> None:
    WebSocketFactory.protocol = BoundedProtocol
    CommandLineInterface.entrypoint()


if __name__ == "__main__":
    main()
