"""`/ws/live` on a page of another user's object: metrics and changes for those who may read it, as long as they may."""

from __future__ import annotations

import asyncio
import json

import pytest
from asgiref.sync import sync_to_async
from django.test import Client
from django.utils import timezone

from accounts.models import Share
from accounts.sharing import grants
from kernel.after_commit import changed
from mlp.asgi import application
from mlp.tests.links import Link

from .test_live import OWN, heard, opened, own_change, report, rows, running

pytestmark = pytest.mark.django_db(transaction=True)
SHOWN = {"kind": "object", "user": "alice", "object": "job", "name": "fit"}
METRICS = {"kind": "metrics", "user": "alice", "job": "fit"}
MINE = {"type": "changed", "kind": "job", "name": "fit", "mine": True, "moving": False}


def shared(job, **given) -> Share:
    return grants.make(row=job, by="alice", **given)[0]


def by_link(share: Share) -> Link:
    """Return the websocket of a browser that has opened the link, without an account."""
    client = Client()
    session = client.session
    session["links"] = [share.pk]
    session.save()
    cookie = f"sessionid={client.cookies['sessionid'].value}".encode()
    return Link(
        application,
        "/ws/live",
        headers=[(b"origin", b"http://localhost"), (b"host", b"localhost"), (b"cookie", cookie)],
    )


async def ready(link: Link) -> Link:
    assert (await link.connect())[0]
    assert await heard(link) == {"type": "ready"}
    return link


async def until(link: Link, kind: str) -> dict:
    while True:
        message = await heard(link)
        if message["type"] == kind:
            return message


def test_a_reader_hears_of_the_object_and_of_nothing_else(alice, bob):
    job = running(alice)
    share = shared(job, audience="user", user="bob")

    async def work():
        link = await opened(bob)
        await link.send_to(json.dumps({"watch": [SHOWN, METRICS]}))
        await until(link, "metrics")
        await sync_to_async(report)("alice", 1)
        assert await rows(link, 1) == [1]
        await sync_to_async(changed)("alice", "dataset", "secret")
        await own_change("bob")
        while (message := await heard(link)) != OWN:
            assert message == {**MINE, "moving": True}  # the progress of the job
        await sync_to_async(changed)("alice", "job", "fit")
        while (message := await heard(link)) != MINE:
            assert message == {**MINE, "moving": True}
        await sync_to_async(grants.revoke)(share, by="alice")
        assert await heard(link) == MINE  # the page fetches itself, and is refused
        await sync_to_async(report)("alice", 2)
        assert (await until(link, "gone"))["job"] == "fit"
        await link.disconnect()

    asyncio.run(work())


def test_a_stranger_watches_nothing(alice, bob):
    running(alice)

    async def work():
        link = await opened(bob)
        await link.send_to(json.dumps({"watch": [SHOWN, METRICS]}))
        assert (await heard(link))["type"] == "gone"
        await sync_to_async(changed)("alice", "job", "fit")
        await own_change("bob")
        assert await heard(link) == OWN
        await link.disconnect()

    asyncio.run(work())


def test_a_link_is_watched_without_an_account_until_it_ends(alice):
    share = shared(running(alice), audience="link")

    async def work():
        link = await ready(await sync_to_async(by_link)(share))
        await link.send_to(json.dumps({"watch": [SHOWN, METRICS, {"kind": "lines", "query": ""}]}))
        await until(link, "metrics")
        await sync_to_async(report)("alice", 1)
        assert await rows(link, 1) == [1]
        await sync_to_async(Share.objects.filter(pk=share.pk).update)(expires=timezone.now())
        await sync_to_async(report)("alice", 2)
        while (output := await link.receive_output())["type"] == "websocket.send":
            assert "metrics" not in output["text"]
        assert output["code"] == 4401
        refused = await sync_to_async(by_link)(share)
        assert (await refused.connect())[0] is False

    asyncio.run(work())


@pytest.mark.parametrize("ending", [{"expires": timezone.now()}, {"revoked": timezone.now()}])
def test_a_page_whose_share_has_ended_is_told_once(alice, bob, monkeypatch, ending):
    share = shared(running(alice), audience="user", user="bob")
    monkeypatch.setattr("mlp.visitors.live.BEAT_S", 0.05)

    async def work():
        link = await opened(bob)
        await link.send_to(json.dumps({"watch": [SHOWN]}))
        await until(link, "beat")
        await sync_to_async(Share.objects.filter(pk=share.pk).update)(**ending)
        assert await until(link, "changed") == MINE
        for _ in range(3):  # at each of which the share is checked again
            assert (await heard(link))["type"] == "beat"
        await sync_to_async(changed)("alice", "job", "fit")
        await own_change("bob")
        assert await until(link, "changed") == OWN
        await link.disconnect()

    asyncio.run(work())
