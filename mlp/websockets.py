"""`python -m mlp.websockets …`: Daphne, with limits on what it buffers for a client, in both directions.

Daphne buffers everything that an application sends until the client has read it, and everything that a client sends
until the application has taken it: a stalled browser on a busy job, or a client that only sends, would fill the memory.
Here

- a client whose message has more than MAX_MESSAGE bytes, also one that is only announced, is disconnected;
- a client that sends faster than its messages are handled, or before its handshake is answered, is read no further
  until they are;
- a websocket whose client does not read is closed once MAX_KEPT bytes wait for it, and its pings are not answered; a
  browser reconnects later and receives the history;
- a streamed response, such as a followed log, goes on when the client has read what was sent; and so does a websocket
  whose application asks for it (PACED), such as a terminal;
- the handshake of a websocket has no body.

Everything else is Daphne's own (https://github.com/django/daphne). Runs as the component `websockets`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from daphne import cli, http_protocol
from daphne.cli import CommandLineInterface
from daphne.endpoints import build_endpoint_description_strings
from daphne.server import Server
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol

from kernel.sockets import BACKLOG

log = logging.getLogger(__name__)

MAX_KEPT = 4 << 20  # bytes beyond the socket's own buffers
MAX_MESSAGE = 64 << 10  # bytes
PACED = "paced"  # a message of the application that is sent, and then waited for until the client has room for more
MAX_WAITING = 32  # messages of a client that wait for the application
RESUMED_AT = MAX_WAITING // 2


class BoundedProtocol(WebSocketProtocol):
    """A websocket whose transport reports when its buffer is full (`pauseProducing`) and when it is empty again."""

    full = False
    kept = 0
    closed_with = ""  # the reason of the application's close, which Daphne does not pass on

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.early: list[bytes] = []  # what came while the handshake was pending
        self.resting = False  # the client is not read
        self.room = asyncio.Event()  # unless `full`
        self.room.set()

    # --- what the client sends --------------------------------------------------------------------------------------
    def dataReceived(self, data):
        if hasattr(self, "handshake_deferred"):  # Daphne's, from the handshake's arrival to its answer
            self.early.append(data)
            self.rest()
        else:
            super().dataReceived(data)

    def serverAccept(self, subprotocol=None):
        super().serverAccept(subprotocol)
        early, self.early = self.early, []
        for data in early:
            self.dataReceived(data)
        self.work()

    def onMessage(self, payload, isBinary):
        super().onMessage(payload, isBinary)
        if self.application_queue.qsize() >= MAX_WAITING:
            self.rest()

    def taken(self):
        """Read on when the application has taken most of the messages that waited for it."""
        if self.resting and self.application_queue.qsize() <= RESUMED_AT:
            self.work()

    def rest(self):
        """Stop reading from the client: what it sends from now on waits in the kernel, and then at the client."""
        if not self.resting:
            self.resting = True
            self.transport.pauseProducing()

    def work(self):
        """Read from the client again."""
        if self.resting:
            self.resting = False
            self.transport.resumeProducing()

    def onPing(self, payload):
        if not self.full:
            super().onPing(payload)

    # --- what the application sends ---------------------------------------------------------------------------------
    def onOpen(self):
        self.unregisterProducer()  # the request's, which has ended with the handshake
        self.registerProducer(self, True)
        super().onOpen()

    def pauseProducing(self):  # called again with each write while the buffer is full
        self.full = True
        self.room.clear()

    def resumeProducing(self):
        self.full, self.kept = False, 0
        self.room.set()

    def stopProducing(self):
        """Let nobody wait any more: Daphne handles the closed connection itself."""
        self.room.set()

    def onClose(self, wasClean, code, reason):
        self.room.set()
        super().onClose(wasClean, code, reason)

    def sendMessage(self, *arguments, **options):
        """Send a message of any size: to Autobahn the limit of what clients send is that of what they get, too."""
        limit, self.maxMessagePayloadSize = self.maxMessagePayloadSize, 0
        try:
            super().sendMessage(*arguments, **options)
        finally:
            self.maxMessagePayloadSize = limit

    def serverSend(self, content, binary=False):
        if self.full:
            self.kept += len(content)
            if self.kept > MAX_KEPT:
                log.warning("websocket of %s: closed, the client does not read its messages", self.client_addr)
                self.transport.abortConnection()
                return
        super().serverSend(content, binary)

    def handle_reply(self, message):
        self.closed_with = str(message.get("reason") or "")  # a Message is not exactly a str
        super().handle_reply(message)

    def serverClose(self, code=None):
        self.sendClose(1000 if code is None else code, self.closed_with or None)


class BoundedRequest(http_protocol.WebRequest):
    """An HTTP request whose application waits while the client does not read the response."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.room = asyncio.Event()
        self.room.set()

    def process(self):
        upgrade = self.requestHeaders.getRawHeaders(b"Upgrade", [b""])[0]
        if upgrade.lower() == b"websocket" and self.content.read(1):
            self.basic_error(400, b"Bad Request", "The handshake of a websocket has no body")
            return None
        return super().process()

    def handle_reply(self, message):
        if message["type"] == "http.response.start" and self.channel is not None and not self.producer:
            self.registerProducer(self, True)
        super().handle_reply(message)

    def pauseProducing(self):
        self.room.clear()

    def resumeProducing(self):
        self.room.set()

    def stopProducing(self):
        self.room.set()

    def finish(self):
        if self.producer:
            self.unregisterProducer()
        super().finish()

    def connectionLost(self, reason):
        self.room.set()  # Daphne ends the application
        super().connectionLost(reason)


class BoundedServer(Server):
    """Daphne's server, whose applications take their messages and send their responses as fast as the client allows."""

    def __init__(self, *arguments, **options):
        sizes = {"websocket_max_message_size": MAX_MESSAGE, "websocket_max_frame_size": MAX_MESSAGE}
        super().__init__(*arguments, **{**options, **sizes})
        self.unbounded = self.application
        self.application = self.bounded

    async def bounded(self, scope, receive, send):
        """Run the application, and tell the websocket about each message that it has taken."""
        protocol = send.args[0]  # Daphne gives partial(handle_reply, protocol)
        if scope["type"] != "websocket":
            return await self.unbounded(scope, receive, send)

        async def take():
            message = await receive()
            protocol.taken()
            return message

        return await self.unbounded(scope, take, send)

    async def handle_reply(self, protocol, message):
        await super().handle_reply(protocol, message)
        waits = message.get("more_body") if isinstance(protocol, BoundedRequest) else message.get(PACED)
        if waits:
            await protocol.room.wait()


def endpoints(**given) -> list[str]:
    """Return Daphne's endpoints with a longer queue: a unix socket whose queue of 50 is full refuses at once."""
    return [f"{each}:backlog={BACKLOG}" for each in build_endpoint_description_strings(**given)]


def main() -> None:
    if "-u" in sys.argv:  # what a killed server left would be in the way
        path = Path(sys.argv[sys.argv.index("-u") + 1])
        for left in (path, path.with_name(f"{path.name}.lock")):
            left.unlink(missing_ok=True)
    WebSocketFactory.protocol = BoundedProtocol
    http_protocol.WebRequest = BoundedRequest
    CommandLineInterface.server_class = BoundedServer
    cli.build_endpoint_description_strings = endpoints
    CommandLineInterface.entrypoint()


if __name__ == "__main__":
    main()
