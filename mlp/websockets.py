"""`python -m mlp.websockets …`: Daphne, with a limit on the data it buffers for a client that does not read.

Daphne buffers everything that an application sends until the client has read it: a stalled browser on a busy job would
fill the memory. Here such a connection is closed; the browser reconnects later and receives the history. Everything
else is Daphne's own (https://github.com/django/daphne). Runs as the component `websockets`.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from daphne.cli import CommandLineInterface
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol

log = logging.getLogger(__name__)

MOST_KEPT = 4 << 20  # bytes beyond the socket's own buffers


class BoundedProtocol(WebSocketProtocol):
    """A websocket whose transport reports when its buffer is full (`pauseProducing`) and when it is empty again."""

    full = False
    kept = 0

    def onOpen(self):
        self.unregisterProducer()  # the request's, which has ended with the handshake
        self.registerProducer(self, True)
        super().onOpen()

    def pauseProducing(self):  # called again with each write while the buffer is full
        self.full = True

    def resumeProducing(self):
        self.full, self.kept = False, 0

    def stopProducing(self):
        """Do nothing: Daphne handles the closed connection itself."""

    def serverSend(self, content, binary=False):
        if self.full:
            self.kept += len(content)
            if self.kept > MOST_KEPT:
                log.warning("websocket of %s: closed, the client does not read its messages", self.client_addr)
                self.transport.abortConnection()
                return
        super().serverSend(content, binary)


def main() -> None:
    if "-u" in sys.argv:  # what a killed server left would be in the way
        path = Path(sys.argv[sys.argv.index("-u") + 1])
        for left in (path, path.with_name(f"{path.name}.lock")):
            left.unlink(missing_ok=True)
    WebSocketFactory.protocol = BoundedProtocol
    CommandLineInterface.entrypoint()


if __name__ == "__main__":
    main()
