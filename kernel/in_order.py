"""The order of what is consumed of a JetStream stream (consuming.py), also after a kill or a failure.

The server keeps what a killed consumer has not acknowledged for a while (`ack_wait`) before it delivers it again, and
delivers later messages meanwhile. So a batch that does not continue where the last one ended is completed first, by
reading the messages between from the stream; when they are delivered again they are only acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from .bus import RETRY_S, Client, Delivery, Stream

log = logging.getLogger(__name__)

Handle = Callable[[list[Delivery]], Awaitable[None]]
READ_AGAIN_S = 5  # how long the messages between two batches may take to come


class Reader:
    """Passes messages on in the stream's order. All up to number `last` have been handled."""

    def __init__(self, client: Client, stream: Stream, handle: Handle, last: int):
        self.client, self.stream, self.handle, self.last = client, stream, handle, last

    async def take(self, messages: list) -> None:
        """Acknowledge the messages once they are handled; have them delivered again when that fails."""
        new = sorted(
            (delivery(message) for message in messages if not self._is_known(message)),
            key=lambda message: message.sequence,
        )
        try:
            if new:
                if new[-1].sequence - self.last != len(new):
                    new = [*await self._between(new[-1].sequence), new[-1]]
                await self.handle(new)
                self.last = new[-1].sequence
        except Exception:  # whatever it is, the batch is delivered again
            log.exception("a batch of %s messages failed and will be delivered again", len(messages))
            await asyncio.gather(*(message.nak(delay=RETRY_S) for message in messages))
        else:
            await asyncio.gather(*(message.ack() for message in messages))

    def _is_known(self, message) -> bool:
        """Return whether it was handled already. In a stream that was made again, a low number is new."""
        meta = message.metadata
        return meta.sequence.stream <= self.last and meta.num_delivered > 1

    async def _between(self, end: int) -> list[Delivery]:
        """Return the messages after `last` and before number `end`, by a consumer that nobody else has."""
        config = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self.last + 1,
            max_ack_pending=-1,
            inactive_threshold=60,
        )
        jetstream = self.client.jetstream()
        pull = await jetstream.pull_subscribe("", stream=self.stream.name, config=config)
        deliveries: list[Delivery] = []
        try:
            while (
                not deliveries or deliveries[-1].sequence < end
            ):  # the one at the end is in the stream: it was delivered
                deliveries += [delivery(message) for message in await pull.fetch(500, timeout=READ_AGAIN_S)]
        finally:
            name = (await pull.consumer_info()).name
            await pull.unsubscribe()
            await jetstream.delete_consumer(self.stream.name, name)
        return [delivery for delivery in deliveries if delivery.sequence < end]


def delivery(message) -> Delivery:
    """Return a message of a pull consumer as its handler gets it."""
    meta = message.metadata
    return Delivery(
        subject=message.subject,
        data=message.data,
        message_id=(message.headers or {}).get("Nats-Msg-Id", ""),
        sequence=meta.sequence.stream,
        sent=meta.timestamp,
    )
