"""Live tail of log lines over the page's websocket, and anomalies on other pages."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from asgiref.sync import sync_to_async

from aiops import logstore
from aiops.conftest import payload
from aiops.intake import accept, tail
from aiops.models import WatchedWorkload
from aiops.services.writeback import WriteBack
from aiops.wire.payloads import encode
from jobs.models import Job
from kernel.after_commit import changed
from kernel.errors import Fault
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import EVIL, markup, visible_text, visitor
from mlp.tests.tiers import few
from mlp.visitors.tests.test_live import heard, opened

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def fresh_pace(monkeypatch):
    """Start each test with a rate limiter of its own."""
    monkeypatch.setattr(tail.send, "__defaults__", (tail.Pace(1000),))
    monkeypatch.setattr(tail, "may_send_verdicts", tail.Pace(1000))


def stored(*texts: str, namespace: str = "alice", deployment: str = "fit", **fields) -> list[dict]:
    return [accept.line(text, namespace=namespace, deployment=deployment, id=f"id-{text}", **fields) for text in texts]


def asking(query: str) -> str:
    return json.dumps({"watch": [{"kind": "lines", "query": query}]})


async def following(user, query: str):
    link = await opened(user)
    await link.send_to(asking(query))
    assert (await heard(link))["type"] == "lines"  # the newest that there are
    return link


async def texts(link) -> list[str]:
    message = await heard(link)
    assert message["type"] == "lines"
    return [row["log"] for row in message["rows"]]


class TestTail:
    def test_a_line_is_sent_when_it_is_stored_and_again_when_it_is_classified(self, alice):
        WatchedWorkload.objects.create(namespace="alice", deployment="fit")

        async def work():
            link = await following(alice, "deployment=fit")
            await sync_to_async(accept.store)(stored("epoch one"))
            first = await heard(link)
            item = payload(
                1, _id="id-epoch one", cluster_id=accept.LOCAL, namespace_name="alice", anomaly_level="Anomaly"
            )
            await sync_to_async(WriteBack().verdicts)([encode([item])])
            return first["rows"], (await heard(link))["rows"]

        first, second = asyncio.run(work())
        assert [(row["id"], row["log"], row["level"]) for row in first] == [("id-epoch one", "epoch one", "")]
        assert [(row["id"], row["log"], row["level"]) for row in second] == [("id-epoch one", "epoch one", "Anomaly")]
        assert first[0]["time"] == second[0]["time"]

    def test_users_get_lines_of_their_namespace_and_operators_all_lines(self, alice, staff):
        async def work():
            links = [await following(user, "") for user in (alice, staff)]
            await sync_to_async(accept.store)(stored("secret", namespace="bob"))
            await sync_to_async(accept.store)(stored("mine"))
            await sync_to_async(accept.store)(stored("last"))
            return [[await texts(link) for _ in range(number)] for link, number in zip(links, (2, 3), strict=True)]

        assert asyncio.run(work()) == [[["mine"], ["last"]], [["secret"], ["mine"], ["last"]]]

    def test_only_matching_lines_are_sent(self, alice):
        async def work():
            link = await following(alice, "q=disk&deployment=fit")
            await sync_to_async(accept.store)(stored("epoch one", "disk gone", "no diskette"))
            await sync_to_async(accept.store)(stored("disk full", deployment="other"))
            await sync_to_async(accept.store)(stored("the last disk"))
            return [await texts(link), await texts(link)]

        assert asyncio.run(work()) == [["disk gone"], ["the last disk"]]

    def test_recent_lines_are_sent_first(self, alice):
        logstore.get().append(stored("early"))

        async def work():
            link = await opened(alice)
            await link.send_to(asking(""))
            return await texts(link)

        assert asyncio.run(work()) == ["early"]

    def test_a_line_that_nobody_watches_says_so(self, alice):
        logstore.get().append(stored("early"))

        async def work():
            link = await opened(alice)
            await link.send_to(asking(""))
            return (await heard(link))["rows"]

        assert [row["level"] for row in asyncio.run(work())] == ["unwatched"]

    def test_no_thread_of_the_event_loop_asks_the_database(self, alice, monkeypatch):
        """Tests allow it, for the browser's driver; servers do not."""
        logstore.get().append(stored("hello"))

        async def work():
            monkeypatch.delenv("DJANGO_ALLOW_ASYNC_UNSAFE", raising=False)
            link = await opened(alice)
            await link.send_to(asking("q=hello"))
            return await texts(link)

        assert asyncio.run(work()) == ["hello"]

    def test_it_stops_when_the_page_unsubscribes(self, alice):
        async def work():
            link = await following(alice, "")
            await link.send_to(json.dumps({"watch": [{"kind": "metrics", "user": "alice", "job": "none"}]}))
            assert (await heard(link))["type"] == "gone"  # the answer to what the page watches instead
            await sync_to_async(accept.store)(stored("late"))
            await sync_to_async(changed)("alice", "job", "last")
            return await heard(link)

        message = asyncio.run(work())
        assert (message["type"], message.get("name")) == ("changed", "last")

    @pytest.mark.parametrize("query", few(["level=bad", "q=%22", "template=x", "&a=1" * 2000, 7], 2))
    def test_invalid_filters_close_the_websocket(self, alice, query):
        async def work():
            link = await opened(alice)
            await link.send_to(asking(query))
            return await link.receive_output()

        assert asyncio.run(work()) == {"type": "websocket.close", "code": 4400}

    def test_the_rate_is_limited_and_anomalies_have_priority(self, staff):
        lines = stored(*(f"line {number}" for number in range(200)))
        odd = {**stored("odd")[0], "time": 1, "anomaly_level": "Anomaly"}

        async def work():
            link = await following(staff, "")
            await sync_to_async(tail.send)([odd, *lines])
            return await texts(link)

        received = asyncio.run(work())
        assert len(received) == tail.MAX_LINES
        assert "odd" in received


def test_the_rate_limiter_allows_a_burst_and_then_a_fixed_rate():
    now = [100.0]
    pace = tail.Pace(10, lambda: now[0])
    assert sum(pace() for _ in range(100)) == tail.AT_ONCE + 1
    now[0] += 0.1
    assert [pace(), pace()] == [True, False]


class TestOnOtherPages:
    @pytest.fixture
    def odd(self, alice):
        put(Job, alice, "fit", "running")
        logstore.get().append([*stored(f"disk gone {EVIL}", "fine"), *stored("secret", namespace="bob")])
        judged = [(f"id-disk gone {EVIL}", "Anomaly"), ("id-fine", "Normal"), ("id-secret", "Anomaly")]
        logstore.get().update_many([(id, {"anomaly_level": level}) for id, level in judged])

    def test_the_anomalies_of_a_job(self, odd, alice):
        answer = visitor(alice).get("/aiops/part?deployment=fit")
        words = visible_text(answer)
        assert "disk gone" in words
        assert "fine" not in words
        assert markup(answer).inline == []
        assert visitor(alice).get("/aiops/part?deployment=other").content.strip() == b""
        tomorrow = int(time.time() * 1000) + 86_400_000
        assert visitor(alice).get(f"/aiops/part?deployment=fit&since={tomorrow}").content.strip() == b""

    def test_those_of_all_own_jobs(self, odd, alice, bob, staff):
        assert "disk gone" in visible_text(visitor(alice).get("/aiops/part"))
        assert "secret" not in visible_text(visitor(alice).get("/aiops/part"))
        assert visitor(staff).get("/aiops/part").content.strip() == b""  # an operator's own jobs, too

    def test_the_list_marks_jobs_with_anomalies(self, odd, alice):
        answer = visitor(alice).get("/aiops/marks")
        assert "1 anomaly" in visible_text(answer)
        (mark,) = [given for _tag, given in markup(answer).tags if "hx-swap-oob" in given]
        assert mark["hx-swap-oob"] == "innerHTML:[data-mark='fit']"
        places = [
            given["data-mark"] for _tag, given in markup(visitor(alice).get("/jobs")).tags if "data-mark" in given
        ]
        assert "fit" in places

    @pytest.mark.parametrize(("page", "piece"), few([("/jobs/fit", "part"), ("/index", "part"), ("/jobs", "marks")], 1))
    def test_pages_request_anomalies(self, odd, alice, page, piece):
        asked = [given["hx-get"] for _tag, given in markup(visitor(alice).get(page)).tags if "hx-get" in given]
        (address,) = [url for url in asked if url.startswith(f"/aiops/{piece}")]
        assert visitor(alice).get(address).status_code == 200

    def test_an_unavailable_store_is_reported(self, alice, monkeypatch):
        def away():
            raise Fault("the log store does not answer")

        monkeypatch.setattr(logstore, "get", away)
        assert "the log store is not responding" in visible_text(visitor(alice).get("/aiops/part"))
        assert visitor(alice).get("/aiops/marks").status_code == 200

    def test_a_session_is_required(self):
        assert visitor().get("/aiops/part").status_code == 302
