"""Request rates of applications: counted by the serving process, validated when read, shown on the page."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from apps import launching, proof, reconcile, request_rates
from apps.models import Application
from kernel import outbound, sockets
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

sys.path.insert(0, str(Path(launching.SERVING)))
import request_counter as counting

sys.path.pop(0)


class TestCounting:
    def test_an_interval_has_a_rate_and_latencies(self, tmp_path):
        counter = counting.Traffic(tmp_path / "traffic.json")
        for number in range(1, 101):
            counter.note(number / 1000, good=number > 3)
        assert counter.tick(0) == 100
        record = json.loads((tmp_path / "traffic.json").read_text())
        assert (record["requests"], record["errors"]) == (100, 3)
        assert record["series"][-1] == [50.0, 50.0, 95.0]

    def test_idle_applications_stop_writing(self, tmp_path):
        counter = counting.Traffic(tmp_path / "traffic.json")
        counter.tick(0)
        assert not (tmp_path / "traffic.json").exists()
        counter.note(0.1, good=True)
        for _ in range(counting.KEPT + 1):
            counter.tick(1)
        written = (tmp_path / "traffic.json").stat().st_mtime_ns
        assert json.loads((tmp_path / "traffic.json").read_text())["series"] == [[0, 0, 0]] * counting.KEPT
        counter.tick(1)
        assert (tmp_path / "traffic.json").stat().st_mtime_ns == written

    def test_tokens_and_the_times_to_the_first_are_part_of_an_interval(self, tmp_path):
        counter = counting.Traffic(tmp_path / "traffic.json")
        for number in range(1, 101):
            counter.note_tokens(1, number / 1000)
            counter.note_tokens(3)
        counter.tick(0)
        counter.note(0.5, good=True)
        counter.tick(0)
        series = json.loads((tmp_path / "traffic.json").read_text())["series"]
        assert series[-2:] == [[0, 0, 0, 50.0, 95.0, 200.0], [0.5, 500.0, 500.0]]

    def test_a_full_disk_does_not_stop_the_application(self, tmp_path):
        counter = counting.Traffic(tmp_path / "no" / "traffic.json")
        counter.note(0.1, good=True)
        assert counter.tick(0) == 1


@pytest.mark.django_db
class TestReading:
    @pytest.fixture
    def app(self, alice):
        app = put(Application, alice, "calc", "ready")
        launching.folder(app).mkdir(parents=True)
        return app

    def tell(self, app, record) -> None:
        text = record if isinstance(record, str) else json.dumps(record)
        (launching.folder(app) / launching.traffic_name(app)).write_text(text)

    def test_the_rate_is_shown_on_the_pages(self, app, alice):
        self.tell(app, {"requests": 37, "errors": 2, "series": [[0, 0, 0], [12.5, 3.25, 8.756789]]})
        page = visitor(alice).get("/apps/calc")
        for word in ("12.5", "3.25 ms", "8.757 ms", "37"):
            assert word in visible_text(page)
        assert "<polyline" in page.content.decode()
        assert '<span title="8.756789">8.757</span> ms' in page.content.decode()
        assert "12.5/s" in visible_text(visitor(alice).get("/apps"))

    def test_tokens_are_shown_on_the_page_of_a_language_model(self, app, alice):
        self.tell(
            app, {"requests": 1, "errors": 0, "series": [[0, 0, 0, 12.5, 40.25, 7], [0.5, 9, 9], [0, 0, 0, 0, 0, 31.5]]}
        )
        assert "Time to first token" not in visible_text(visitor(alice).get("/apps/calc"))
        type(app.model).objects.filter(pk=app.model_id).update(format="transformers")
        page = visitor(alice).get("/apps/calc")
        for word in ("Time to first token", "12.5 ms", "40.25 ms", "Tokens per second", "31.5"):
            assert word in visible_text(page)
        assert page.content.decode().count("<polyline") == 4

    def test_several_processes_are_summed(self):
        parts = [
            request_rates.Traffic(1, 0, [request_rates.Interval(1, 10, 20, 100, 200, 30)], True),
            request_rates.Traffic(1, 0, [request_rates.Interval(3, 30, 90, 200, 700, 10)], True),
            request_rates.Traffic(1, 0, [request_rates.Interval(0, 0, 0)], True),
        ]
        assert request_rates._sum(parts).series[-1] == (4, 25, 90, 125, 700, 40)

    @pytest.mark.parametrize(
        "record",
        few(["", "[", "7", "[" * 100_000, {"requests": 1}, {"requests": "1", "errors": 0, "series": []},
         {"requests": 1, "errors": 0, "series": [[1]]}, {"requests": 1, "errors": 0, "series": [[1, 2, "<b>"]]},
         {"requests": 1, "errors": 0, "series": [[1, 2, 3, 4]]}, {"requests": 1, "errors": 0, "series": ["123456"]},
         {"requests": -1, "errors": 0, "series": []}, {"requests": 1, "errors": 0, "series": 7},
         '{"requests": NaN, "errors": 0, "series": []}', "x" * 10_000_000], 4),
    )  # fmt: skip
    def test_invalid_records_are_ignored(self, app, alice, record):
        self.tell(app, record)
        assert request_rates.read(app) is None
        assert visitor(alice).get("/apps/calc").status_code == 200

    def test_huge_numbers_are_clipped(self, app, alice):
        many = 10**400
        self.tell(app, {"requests": many, "errors": 0, "series": [[many, many, many]]})
        assert request_rates.read(app).requests == 10**12
        for page in ("/index", "/apps", "/apps/calc"):
            assert visitor(alice).get(page).status_code == 200, page

    def test_a_link_is_not_followed(self, app, tmp_path):
        (tmp_path / "other").write_text(json.dumps({"requests": 1, "errors": 0, "series": []}))
        (launching.folder(app) / launching.traffic_name(app)).symlink_to(tmp_path / "other")
        assert request_rates.read(app) is None

    def test_an_old_record_gives_no_current_rate(self, app):
        record = {"requests": 1, "errors": 0, "series": [[5, 1, 1]]}
        assert request_rates.Traffic(**{**record, "fresh": True}).rate == 5
        assert request_rates.Traffic(**{**record, "fresh": False}).rate == 0

    def test_pages_are_refreshed_when_something_was_counted(self, app, monkeypatch):
        events = []
        monkeypatch.setattr(reconcile.after_commit, "changed", lambda *args, **kwargs: events.append((args, kwargs)))
        for at, series in ((1, [[1, 1, 1]]), (2, [[2, 1, 1]])):
            self.tell(app, {"requests": 1, "errors": 0, "series": series})
            os.utime(launching.folder(app) / launching.traffic_name(app), (at, at))
            reconcile._announce_requests(app)
            reconcile._announce_requests(app)
        assert events == [(("alice", "application", "calc"), {"moving": True})]


@pytest.mark.django_db(transaction=True)
def test_a_real_application_counts_its_requests(deploy, ready):
    app = ready(deploy())
    for body in (b'{"x": [1]}', b'{"x": [2]}'):
        address, headers = sockets.parse(app.address), proof.headers(app.run_name)
        assert outbound.exchange(address, "POST", "/predict", body, headers, limit_s=LIMIT_S, most=1000)[0] == 200
    end = time.monotonic() + LIMIT_S
    while (traffic := request_rates.read(app)) is None or traffic.requests < 2:
        assert time.monotonic() < end, traffic
        time.sleep(0.1)
    assert (traffic.requests, traffic.errors) == (2, 0)
    assert traffic.median > 0
