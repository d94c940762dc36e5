"""`/ws/live`, the websocket of a page: access, notifications, and the metrics of the jobs it shows."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts import sessions
from accounts.models import User
from aiops.intake import accept, tail
from jobs import lifecycle
from jobs.models import Job
from kernel.after_commit import changed
from kernel.bus import Delivery
from mlp.asgi import application
from mlp.operators.tests.admin_world import put
from mlp.tests.links import Link
from mlp.tests.tiers import few
from mlp.visitors.live import BEAT_S
from tracking.metrics import recording

pytestmark = pytest.mark.django_db(transaction=True)
OWN = {"type": "changed", "kind": "dataset", "name": "own", "mine": True, "moving": False}


def link_of(user, origin: str = "http://localhost", client: Client | None = None) -> Link:
    headers = [(b"origin", origin.encode()), (b"host", b"localhost")]
    if user is not None:
        client = client or Client()
        client.force_login(user)
        headers.append((b"cookie", f"sessionid={client.cookies['sessionid'].value}".encode()))
    return Link(application, "/ws/live", headers=headers)


async def opened(user, client: Client | None = None) -> Link:
    link = await sync_to_async(link_of)(user, client=client)
    assert (await link.connect())[0]
    assert await heard(link) == {"type": "ready"}
    return link


async def heard(link) -> dict:
    return json.loads(await link.receive_from())


async def own_change(username: str) -> None:
    """Change an object of the user: pages hear of it as `OWN`, after all changes before it."""
    await sync_to_async(changed)(username, "dataset", "own")


def running(user, name: str = "fit") -> Job:
    return put(Job, user, name, "running")


def report(user: str, *epochs: int, job: str = "fit") -> None:
    for epoch in epochs:
        data = json.dumps({"epoch": epoch, "accuracy": 0.5, "loss": 1, "progress": epoch}).encode()
        recording.record([Delivery(recording.subject(user, job), data, f"{job}-{epoch}", epoch, timezone.now())])


def watch(*entries: dict) -> str:
    return json.dumps({"watch": [{"kind": "metrics", **entry} for entry in entries]})


async def rows(link, until: int) -> list[int]:
    """Return the epochs of the metrics that arrive, up to `until`; skip other messages."""
    epochs: list[int] = []
    while not epochs or epochs[-1] != until:
        message = await heard(link)
        if message["type"] == "metrics":
            epochs += [row["epoch"] for row in message["rows"]]
    return epochs


class TestHandshake:
    def test_a_session_and_the_same_origin_are_required(self, alice):
        async def connected(user, origin: str) -> bool:
            link = await sync_to_async(link_of)(user, origin)
            answer, _ = await link.connect()
            await link.disconnect()
            return answer

        async def work():
            return [
                await connected(alice, "http://localhost"),
                await connected(None, "http://localhost"),
                await connected(alice, "http://evil.example"),
                await connected(alice, ""),
            ]

        assert asyncio.run(work()) == [True, False, False, False]

    @pytest.mark.parametrize("text", few([
        " ", "x", "[]", "{}", '{"watch": 1}', '{"watch": [1]}', '{"watch": [{"kind": "all"}]}',
        '{"watch": [{"kind": "metrics", "user": "alice", "job": "a\\u0000"}]}',
        '{"watch": [{"kind": "metrics", "user": "alice", "job": "a", "after": 99999999999999999999}]}',
        "[" * 9000, '{"watch": [' + " " * 20000 + "]}",
    ], 4))  # fmt: skip
    def test_invalid_messages_close_it(self, alice, text):
        async def work():
            link = await opened(alice)
            await link.send_to(text)
            return await link.receive_output()

        assert asyncio.run(work()) == {"type": "websocket.close", "code": 4400}

    def test_one_user_cannot_have_more_than_the_limit(self, alice, bob, settings):
        settings.WEBSOCKETS_PER_USER = 1

        async def work():
            first = await opened(alice)
            second = await sync_to_async(link_of)(alice)
            assert (await second.connect())[0]
            refusal = await second.receive_output()
            await second.disconnect()
            await (await opened(bob)).disconnect()
            await first.disconnect()
            await (await opened(alice)).disconnect()
            return refusal

        reason = "too many at the same time: a user may have 1 (MLP_WEBSOCKETS_PER_USER)"
        assert asyncio.run(work()) == {"type": "websocket.close", "code": 4429, "reason": reason}

    def test_it_closes_when_the_account_is_deactivated(self, alice):
        async def work():
            link = await opened(alice)
            await sync_to_async(accounts.deregister)(username="alice", by="test")
            return await link.receive_output()

        assert asyncio.run(work()) == {"type": "websocket.close", "code": 4401}


def closed(code: int) -> dict:
    return {"type": "websocket.close", "code": code}


class TestRights:
    """Revoked permissions also apply to open pages."""

    @pytest.mark.parametrize("end", [
        lambda user, client: client.post("/logout"),
        lambda user, client: client.post("/admin/logout/"),
        lambda user, client: accounts.change_password(user=user, password="another good one", by="test"),
        lambda user, client: sessions.end_others(user, keep=""),
    ], ids=["logout", "the admin's logout", "password", "ended elsewhere"])  # fmt: skip
    def test_it_closes_when_its_session_ends(self, staff, end):
        client = Client()

        async def work():
            link = await opened(staff, client)
            await sync_to_async(end)(staff, client)
            return await link.receive_output()

        assert asyncio.run(work()) == closed(4401)

    def test_a_logout_ends_no_other_session(self, alice):
        here, there = Client(), Client()

        async def work():
            link = await opened(alice, there)
            await sync_to_async(here.force_login)(alice)
            await sync_to_async(here.post)("/logout")
            return await heard(link)

        assert asyncio.run(work())["kind"] == "session"

    @pytest.mark.parametrize("before", [True, False])
    def test_changed_permissions_close_it_and_apply_after_reconnecting(self, bob, staff, make_user, before):
        make_user("olga", is_staff=before)
        running(bob)

        async def until_operator(link) -> list[str]:
            """Return the `mine` flags of the messages that olga's page receives, up to a change of her own."""
            await sync_to_async(changed)("bob", "job", "fit")
            await sync_to_async(changed)("olga", "job", "own")
            flags = []
            while "True" not in flags:
                flags.append(str((await heard(link))["mine"]))
            return flags

        async def work():
            olga = await sync_to_async(User.objects.get)(username="olga")
            link, witness = await opened(olga), await opened(staff)
            first = await until_operator(link)
            await sync_to_async(accounts.set_staff)(username="olga", staff=not before, by="test")
            end = await link.receive_output()
            for owner in ("bob", "olga"):
                await sync_to_async(changed)(owner, "job", "fit")
            await own_change("oscar")
            while await heard(witness) != OWN:
                pass
            await link.assert_silent()
            await sync_to_async(olga.refresh_from_db)()
            return first, end, await until_operator(await opened(olga))

        operator, user = ["False", "True"], ["True"]
        first, last = (operator, user) if before else (user, operator)
        assert asyncio.run(work()) == (first, closed(4403), last)

    @pytest.mark.parametrize("entry", [
        {"kind": "metrics", "user": "alice", "job": "fit"}, {"kind": "lines", "query": ""}, {"kind": "parts"},
    ])  # fmt: skip
    def test_a_former_operator_gets_nothing_though_the_notification_was_lost(
        self, alice, staff, make_user, monkeypatch, entry
    ):
        monkeypatch.setattr("mlp.visitors.live.health.report", dict)
        present = make_user("olga", is_staff=True)
        running(alice)
        report("alice", 1)

        async def work():
            link, witness = await opened(staff), await opened(present)
            await sync_to_async(User.objects.filter(username="oscar").update)(is_staff=False)
            for connection in (link, witness):
                await connection.send_to(json.dumps({"watch": [entry]}))
            end = await link.receive_output()
            while (await heard(witness))["type"] != entry["kind"]:  # which is answered after the other
                pass
            await link.assert_silent()
            return end

        assert asyncio.run(work()) == closed(4403)

    @pytest.mark.parametrize(("take", "code"), [
        (lambda: User.objects.filter(username="oscar").update(is_staff=False), 4403),
        (lambda: User.objects.filter(username="oscar").update(is_superuser=False), 4403),
        (lambda: Session.objects.all().delete(), 4401),
    ])  # fmt: skip
    def test_metrics_stop_after_revocation_though_the_notification_was_lost(self, alice, staff, take, code):
        running(alice)
        report("alice", 1)

        async def work():
            link = await opened(staff)
            await link.send_to(watch({"user": "alice", "job": "fit"}))
            assert await rows(link, 1) == [1]
            await sync_to_async(take)()
            await sync_to_async(report)("alice", 2)
            while (said := await link.receive_output())["type"] == "websocket.send":
                assert json.loads(said["text"])["type"] == "changed"
            return said

        assert asyncio.run(work()) == closed(code)

    def test_permissions_are_checked_again_at_each_beat(self, staff, monkeypatch):
        monkeypatch.setattr("mlp.visitors.live.BEAT_S", 0.05)

        async def work():
            link = await opened(staff)
            assert await heard(link) == {"type": "beat"}
            await sync_to_async(Session.objects.all().delete)()
            for _ in range(20):  # the next beat, and those that were on their way
                if (said := await link.receive_output())["type"] != "websocket.send":
                    break
            return said

        assert asyncio.run(work()) == closed(4401)


class TestChanges:
    def test_the_owner_and_operators_are_notified_of_state_changes(self, alice, bob, staff):
        job = put(Job, alice, "fit", "running")

        async def work():
            links = [await opened(user) for user in (alice, staff, bob)]
            await sync_to_async(lifecycle.fail)(job.pk, "exit code 1", "test")
            await own_change("bob")
            return [await heard(link) for link in links]

        mine, others, strangers = asyncio.run(work())
        assert strangers == OWN
        assert mine == {"type": "changed", "kind": "job", "name": "fit", "mine": True, "moving": False}
        assert others == {"type": "changed", "kind": "job", "name": "", "mine": False, "moving": False}

    def test_many_changes_are_sent_as_one_message(self, alice, monkeypatch):
        is_over = asyncio.Event()  # the time in which changes are sent together

        async def sleep(seconds: float) -> None:
            await (is_over.wait() if seconds < BEAT_S else asyncio.sleep(seconds))

        slept = {**vars(asyncio), "sleep": sleep}
        monkeypatch.setattr("mlp.visitors.live.asyncio", SimpleNamespace(**slept))

        async def work():
            link = await opened(alice)
            await link.send_to('{"watch": [{"kind": "lines", "query": ""}]}')
            assert (await heard(link))["type"] == "lines"
            for moving in (True, True, False, True):
                await sync_to_async(changed)("alice", "job", "fit", moving=moving)
            await own_change("alice")
            await sync_to_async(tail.send)([accept.line("sent at once", namespace="alice", deployment="fit", id="1")])
            assert (await heard(link))["type"] == "lines"
            is_over.set()
            return [await heard(link), await heard(link)]

        assert asyncio.run(work()) == [{**OWN, "kind": "job", "name": "fit"}, OWN]

    def test_progress_is_sent_as_moving(self, alice):
        running(alice)

        async def work():
            link = await opened(alice)
            await sync_to_async(report)("alice", 1)
            return await heard(link)

        changed = {"type": "changed", "kind": "job", "name": "fit", "mine": True, "moving": True, "progress": 1}
        assert asyncio.run(work()) == changed


class TestMetrics:
    def test_history_then_live_rows_of_several_jobs_in_order(self, alice):
        for name in ("fit", "other"):
            running(alice, name)
        report("alice", 1, 2)
        report("alice", 7, job="other")

        async def work():
            link = await opened(alice)
            await link.send_to(watch({"user": "alice", "job": "fit"}))
            first = await rows(link, 2)
            await link.send_to(watch({"user": "alice", "job": "fit"}, {"user": "alice", "job": "other"}))
            second = await rows(link, 7)
            await sync_to_async(report)("alice", 3, 4)
            return first, second, await rows(link, 4)

        assert asyncio.run(work()) == ([1, 2], [7], [3, 4])

    def test_after_a_reconnect_only_the_rest_is_sent_unless_it_is_another_job(self, alice):
        job = running(alice)
        report("alice", 1, 2, 3)

        async def asked(**known):
            link = await opened(alice)
            await link.send_to(watch({"user": "alice", "job": "fit", **known}))
            message = await heard(link)
            return message["reset"], [row["epoch"] for row in message["rows"]]

        assert asyncio.run(asked(id=job.pk, after=2)) == (False, [3])
        assert asyncio.run(asked(id=job.pk + 1, after=2)) == (True, [1, 2, 3])

    def test_the_end_is_sent(self, alice):
        job = running(alice)
        report("alice", 1)
        lifecycle.fail(job.pk, "exit code 1", "test")

        async def work():
            link = await opened(alice)
            await link.send_to(watch({"user": "alice", "job": "fit"}))
            return await heard(link)

        message = asyncio.run(work())
        assert message["ended"] is True
        assert [row["epoch"] for row in message["rows"]] == [1]

    def test_other_users_jobs_are_gone_except_for_operators(self, alice, bob, staff):
        running(alice)
        report("alice", 1)

        async def first_message(user, job: str = "fit"):
            link = await opened(user)
            await link.send_to(watch({"user": "alice", "job": job}))
            return (await heard(link))["type"]

        assert [asyncio.run(first_message(user)) for user in (bob, staff)] == ["gone", "metrics"]
        assert asyncio.run(first_message(alice, "none")) == "gone"
