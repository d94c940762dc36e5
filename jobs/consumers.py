"""`…/jobs/{job}/attach`: a websocket with a program in a running job, for `mlp attach`.

Opened by the owner with a token that may do everything, as `Authorization: Bearer {token}`. Messages of text are JSON:

    {"command": words, "terminal": kind, "rows": n, "columns": n, "worker": n}
                         from the client, the first: the program, by default a shell. All fields are optional; without
                         `terminal`, a value of TERM, the program has pipes
    {"resize": [n, n]}   from the client: rows and columns of its terminal
    {"eof": true}        from the client: its input has ended
    {"started": true}    from the platform: the program has begun
    {"exit_code": n}     from the platform, the last

Messages of bytes are the program's input, and its output after a byte: 1 for output, 2 for errors. When the websocket
ends the program gets SIGHUP. Closed with 1000 after the program's end, 4400 for what is not understood, 4401 when the
token has ended, 4403 when the platform refuses, 4409 when the job is not running any more, 4429 when the user has too
many websockets, 4503 when the platform cannot do it now; the reason says why, in the language that Accept-Language asks
for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor

from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.utils.translation import override

from accounts.auth import bearer, user_of_token
from kernel.errors import Fault, Refused
from kernel.locking import Missing, WrongState
from kernel.messages import Message, accepted_language, translate
from kernel.slots import TOO_MANY, WEBSOCKETS, Slot
from runners import RunnerError
from runners.attaching import Attached

from . import attach

log = logging.getLogger(__name__)

BEGINNING = ThreadPoolExecutor(8, "attach")  # a run that does not answer holds one up for seconds
BLOCK = 32 << 10
OUTPUT, ERRORS = b"\x01", b"\x02"
RECHECK_S = 5.0  # between two checks of the token and the job
NORMAL, MALFORMED, ENDED, REFUSED, NOT_RUNNING, FAULT = 1000, 4400, 4401, 4403, 4409, 4503
PACED = "paced"  # mlp.websockets: the next message is sent when the client has room for it
LONGEST_REASON = 120  # bytes; a websocket's may have 123


class AttachConsumer(AsyncWebsocketConsumer):
    """One program. Its descriptors are read and written in the event loop, as fast as the client and it allow."""

    language = settings.LANGUAGE_CODE
    slot: Slot | None = None
    program: Attached | None = None
    ended = False
    exited = False  # the program, not all who have its output open

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.tasks: list[asyncio.Task] = []
        self.waiting: set[asyncio.Event] = set()

    async def __call__(self, scope, receive, send):
        try:
            await super().__call__(scope, receive, send)
        finally:  # also where the server does not wait for us any more
            self._end()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            if self.program is not None:
                self.program.close()

    async def connect(self) -> None:
        headers = dict(self.scope["headers"])
        try:
            self.token = bearer(headers.get(b"authorization", b"").decode("latin-1")) or ""
        except Refused:
            self.token = ""
        self.language = accepted_language(headers.get(b"accept-language", b"").decode("latin-1"))
        self.user = await database_sync_to_async(user_of_token)(self.token) if self.token else None
        route = self.scope["url_route"]["kwargs"]
        if self.user is None or self.user.username != route["user"]:
            await self.close()  # before accept: the handshake is refused
            return
        self.name = route["name"]
        await self.accept()
        self.slot = WEBSOCKETS.take(self.user.pk)
        if self.slot is None:
            await self._over(TOO_MANY, WEBSOCKETS.refusal())

    async def disconnect(self, code) -> None:
        self._end()

    async def receive(self, text_data=None, bytes_data=None, **kwargs) -> None:
        """Begin with the first message; then pass on what the client sends."""
        if self.ended:
            return
        try:
            if bytes_data is not None:
                await self._input(bytes_data)
            else:
                await self._order(json.loads(text_data))
        except (ValueError, RecursionError, OverflowError, TypeError):
            await self._over(MALFORMED, Message("the message is not understood"))

    async def _order(self, order: object) -> None:
        if self.program is None:
            return await self._begin(order)
        if not isinstance(order, dict):
            raise ValueError
        if "resize" in order:
            rows, columns = map(attach.number, order["resize"])
            self.program.resize(rows, columns)
        elif order.get("eof") is True:
            self.program.end_input()
        else:
            raise ValueError

    async def _begin(self, order: object) -> None:
        try:
            program = attach.wanted(order)
            self.job = await database_sync_to_async(attach.owned_job)(self.user, self.name)
            begin = database_sync_to_async(attach.begin, thread_sensitive=False, executor=BEGINNING)
            self.program, self.run = await begin(self.job, program, by=self.user.username)
        except Missing as problem:
            return await self._over(REFUSED, problem.msg)
        except WrongState as problem:
            return await self._over(NOT_RUNNING, problem.msg)
        except Refused as problem:
            return await self._over(REFUSED, problem.msg)
        except Fault as problem:
            return await self._over(FAULT, problem.msg)
        if self.ended:  # the client has gone meanwhile
            return self.program.close()
        await self.send(json.dumps({"started": True}))
        self.tasks += [asyncio.create_task(self._work()), asyncio.create_task(self._watch())]

    # --- the program ------------------------------------------------------------------------------------------------
    async def _work(self) -> None:
        """Send the program's output, and then its exit code. What it has left in the background may go on."""
        shown = [
            asyncio.create_task(self._show(kind, output))
            for kind, output in zip((OUTPUT, ERRORS), self.program.outputs, strict=False)
        ]
        self.tasks += shown
        await self._ready(self.program.link.fileno())
        self.exited = True
        self._wake()
        await asyncio.gather(*shown)
        try:
            code = self.program.exit_code()
        except RunnerError as problem:
            return await self._over(NOT_RUNNING, problem.msg)
        await self.send(json.dumps({"exit_code": code}))
        await self._over(NORMAL)

    async def _show(self, kind: bytes, output: int) -> None:
        while True:
            try:
                data = os.read(output, BLOCK)
            except BlockingIOError:
                if self.exited:
                    return
                await self._ready(output)
                continue
            except OSError:  # a terminal that nobody has open any more
                return
            if not data:
                return
            await self.base_send({"type": "websocket.send", "bytes": kind + data, PACED: True})

    async def _input(self, data: bytes) -> None:
        if self.program is None:
            raise ValueError
        while data and not self.ended and self.program.takes_input:
            try:
                data = data[os.write(self.program.input, data) :]
            except BlockingIOError:
                await self._ready(self.program.input, writing=True)
            except OSError:  # it reads no more, or has ended
                self.program.end_input()

    async def _ready(self, descriptor: int, writing: bool = False) -> None:
        """Wait until a descriptor can be read or written, the program has exited or the websocket has ended."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
        self.waiting.add(done)
        add(descriptor, done.set)
        try:
            await done.wait()
        finally:
            remove(descriptor)
            self.waiting.discard(done)

    def _wake(self) -> None:
        for done in self.waiting:
            done.set()

    async def _watch(self) -> None:
        """End the program once its caller's token is not valid any more, or the job is not theirs."""
        while True:
            await asyncio.sleep(RECHECK_S)
            try:
                valid = await database_sync_to_async(attach.still)(self.job, self.run, self.token)
            except Exception as problem:  # the database is unavailable: asked again
                log.warning("a program in job %s cannot be checked: %s", self.job.pk, problem)
                continue
            if not valid:
                return await self._over(ENDED, Message("the token is not valid any more, or the job has ended"))

    # --- the end ----------------------------------------------------------------------------------------------------
    async def _over(self, code: int, reason: object = "") -> None:
        """Close the websocket, with as much of the reason as its close has room for."""
        if not self.ended:
            self._end()
            with override(self.language):
                text = str(translate(reason)).encode()[:LONGEST_REASON].decode(errors="ignore")
            with contextlib.suppress(StopConsumer):
                await self.close(code, text or None)

    def _end(self) -> None:
        """End the program, and give the slot back; again has no effect."""
        if self.ended:
            return
        self.ended = True
        self._wake()
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if self.slot is not None:
            self.slot.free()
        if self.program is not None:  # its descriptors are waited for until then
            gone = asyncio.gather(*self.tasks, return_exceptions=True)
            gone.add_done_callback(lambda _tasks: self.program.close())
