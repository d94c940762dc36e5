"""A real platform is scraped: every metric that the alerts and the dashboard ask for is there, and kills change no
count.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import requests
import yaml
from django.conf import settings
from prometheus_client.parser import text_string_to_metric_families

from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later
from supervision.tests.shared import Shared
from supervision.tests.visitor import USER, Feed, Visitor

pytestmark = pytest.mark.begins(0)

FOLDER = Path(settings.BASE_DIR) / "deploy" / "monitoring"
NAME = re.compile(r"\b(mlp_[a-z0-9_]+)")
ONLY_WITH = ("mlp_gpu_", "mlp_delivery_attempts", "mlp_tls_")  # a device, a notice that was sent, TLS
NO_PROMTOOL = "promtool is not installed (Debian's package prometheus has it)"
promtool = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(promtool is None, reason=NO_PROMTOOL)


def rules() -> list[dict]:
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict]:
    return [panel for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """Return every query of the alerts and the dashboard, as Prometheus would get it."""
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + [
        query.replace("$__rate_interval", "1m").replace("$instance", ".*") for query in shown
    ]


def check(*arguments: str, text: str | None = None, cwd: Path | None = None) -> None:
    done = subprocess.run([promtool, *arguments], input=text, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Scraped:
    """A platform with a user who works, and its metrics."""

    def __init__(self, platform: Shared):
        self.platform, self.visitor = platform, Visitor(platform)
        self.token = (platform.root / "metrics-token").read_text().strip()

    def text(self) -> str:
        address = f"{self.visitor.gateway}/metrics"
        answer = requests.get(address, headers={"Authorization": f"Bearer {self.token}"}, timeout=LIMIT_S)
        assert answer.status_code == 200
        return answer.text

    def samples(self) -> dict[tuple, float]:
        time.sleep(1.01)  # an answer is kept for a second
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the samples that have these labels."""
        samples = self.samples()
        return sum(value for key, value in samples.items() if key[0] == name and set(labels.items()) <= set(key[1:]))


@pytest.fixture(scope="module")
def scraped(shared):
    scraped = Scraped(shared.running())
    backup = shared.root / "run" / "backup.json"
    backup.write_text('{"completed": "2026-01-02T03:04:05+00:00", "bytes": 1}')
    yield scraped
    backup.unlink()
    shared.leave(USER, scraped.visitor.headers)


@pytest.mark.e2e
def test_every_metric_that_is_asked_for_exists(scraped):
    visitor = scraped.visitor
    feed = Feed(visitor)
    assert visitor.report() == 200
    feed.until(max(visitor.epochs))
    assert visitor.infer() == 200
    until(lambda: scraped.value("mlp_application_requests_total") > 0)
    assert scraped.value("mlp_connections_open", kind="websocket") >= 1
    assert scraped.value("mlp_ingest_lag_seconds_count") >= 1
    assert scraped.value("mlp_jobs", state="running") == 1
    assert scraped.value("mlp_http_requests_total", route="/internal/data/store", part="data") >= 1
    assert scraped.value("mlp_tasks_total", actor="jobs.launch", outcome="done") >= 1
    text = scraped.text()
    feed.link.close()
    until(lambda: scraped.value("mlp_connections_open", kind="websocket") == 0)
    names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    asked = {name for query in queries() for name in NAME.findall(query)}
    assert len(asked) > 40
    missing = {name for name in asked - names if not name.startswith(ONLY_WITH)}
    assert missing == set()
    documented = set(NAME.findall((Path(settings.BASE_DIR) / "docs" / "monitoring.md").read_text()))
    plain = {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}
    assert {name for name in plain if name.startswith("mlp_")} - documented == set()
    if promtool:
        check("check", "metrics", text=text)


@pytest.mark.e2e
@pytest.mark.parametrize("part", ["web", later("worker"), later("reconcile")])
def test_a_kill_takes_nothing_from_the_counts(scraped, part):
    def counted() -> dict[tuple, float]:
        return {key: value for key, value in scraped.samples().items() if key[0].endswith(("_total", "_count"))
                and key[0].startswith(("mlp_http", "mlp_task", "mlp_state", "mlp_reconcile"))}  # fmt: skip

    before = counted()
    killed = scraped.platform.kill_part(part)
    scraped.platform.healed(part, killed)
    after = counted()
    assert {key: (value, after.get(key, 0)) for key, value in before.items() if after.get(key, 0) < value} == {}
    folder = scraped.platform.root / "run" / "metrics"
    assert not [path for path in folder.glob("*.db") if path.stem.rpartition("_")[2] in {str(pid) for pid in killed}]


@pytest.mark.long
@pytest.mark.e2e
def test_a_server_that_hangs_is_shown_as_down_while_it_does(scraped):
    pids = scraped.platform.pids("valkey")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        down = scraped.value("mlp_part_up", part="valkey")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert down == 0
    until(lambda: scraped.value("mlp_part_up", part="valkey") == 1)


def test_every_panel_has_its_place_and_every_alert_its_explanation():
    places = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels()
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places))
    assert max(x for x, _y in places) < 24
    page = (Path(settings.BASE_DIR) / "docs" / "monitoring.md").read_text()
    for rule in rules():
        assert f"`{rule['alert']}`" in page, rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


@needs_promtool
def test_promtool_accepts_the_rules_and_every_query(tmp_path):
    check("check", "rules", str(FOLDER / "rules.yml"))
    records = [{"record": f"query:number_{at}", "expr": query} for at, query in enumerate(queries())]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": records}]}))
    check("check", "rules", str(tmp_path / "queries.yml"))


@needs_promtool
def test_the_alerts_fire_when_they_should(tmp_path):
    shutil.copy(FOLDER / "rules.yml", tmp_path)
    shutil.copy(Path(__file__).with_name("rules_test.yml"), tmp_path)
    check("test", "rules", "rules_test.yml", cwd=tmp_path)


@needs_promtool
def test_promtool_accepts_the_example_configuration():
    check("check", "config", "--syntax-only", str(FOLDER / "prometheus.yml"))
