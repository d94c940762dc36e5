"""End to end with the real model and log store: watchlist, lines, training on the CPU, verdicts."""

from __future__ import annotations

import pytest

from aiops import logstore
from aiops.intake import accept
from aiops.models import ModelVersion
from aiops.services.registry import SERVICES, make
from aiops.training import requests
from aiops.training.tests.test_training import WORDS, WORKLOADS, no_gpu, settled, working

__all__ = ["no_gpu"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]

TINY = {"width": 16, "inner": 32, "heads": 2, "layers": 1, "least_steps": 60, "most_steps": 60}
LEFT_OUT = {"follower"}  # it would read this very run's own logs
KNOWN = "session 7 opened for user3 on 10.0.0.9"
FOREIGN = "kernel panic: unable to mount root filesystem"
ELSEWHERE = {"namespace": "shop", "deployment": "other"}


def line(text: str, name: str, **where) -> dict:
    return accept.line(text, id=name, **{"cluster": "c1", "namespace": "shop", "deployment": "web", **where})


def test_from_the_watchlist_to_a_verdict(served, tasks, peer, settings):
    settings.AIOPS_TRAINING_PARAMETERS = TINY
    for subject in ("inferenced_logs", "gpu_trainingjob_status"):
        peer.listen(subject)
    work = working(tasks)
    lines = [f"session {n} {WORDS[n % 6]} for user{n % 5} on 10.0.0.{n % 250}" for n in range(300)]
    accept.store([line(text, f"n{n}") for n, text in enumerate(lines)])
    accept.store([line("error: the disk is full", "trouble"), line("not watched at all", "other", **ELSEWHERE)])
    served(*[make(name) for name in SERVICES if name not in LEFT_OUT])
    assert requests.request_training(WORKLOADS) == "training job submitted"
    run = work(settled)
    assert run.state == "completed", run.reason
    assert run.lines == 300  # neither the line of trouble nor the other workload's
    assert ModelVersion.objects.get(serving=True).manifest
    assert peer.wait("gpu_trainingjob_status", 2) == [b"JobStart", b"JobEnd"]
    known, foreign = judged(work, known=KNOWN, foreign=FOREIGN)
    assert (known["anomaly_level"], known["inference_model"]) == ("Normal", "opnilog")
    assert (foreign["anomaly_level"], foreign["masked_log"]) == ("Anomaly", FOREIGN.replace(":", " :"))
    assert known["opnilog_confidence"] > foreign["opnilog_confidence"]
    (again,) = judged(work, again=KNOWN.replace("7", "8"))
    assert (again["anomaly_level"], again["inference_model"]) == ("Normal", "drain")
    assert again["template_cluster_id"] == known["template_cluster_id"]
    assert requests.request_training({}) == "model reset"
    work(lambda: not ModelVersion.objects.filter(serving=True).exists())


def judged(work, **lines: str) -> list[dict]:
    """Send the lines; return them from the log store once they all have a verdict."""
    accept.store([line(text, name) for name, text in lines.items()])
    wanted = {"query": {"bool": {"filter": [{"ids": {"values": list(lines)}}, {"exists": {"field": "anomaly_level"}}]}}}

    def verdicts():
        documents = {document["_id"]: document for document in logstore.get().scan(wanted)}
        documents = {name: document for name, document in documents.items() if document.get("anomaly_level")}
        return [documents[name] for name in lines] if set(lines) <= set(documents) else None

    return work(verdicts)
