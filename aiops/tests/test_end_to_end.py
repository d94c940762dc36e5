"""The whole way, with the real model: watchlist, lines, training on the CPU, verdicts on the wire."""

from __future__ import annotations

import pytest

from aiops import gateway, wire
from aiops.models import ModelVersion
from aiops.services.drain import WorkloadDrain
from aiops.services.gpu_controller import GpuController
from aiops.services.inference import Inference
from aiops.services.preprocess import Preprocessing
from aiops.services.training_controller import TrainingController

from .conftest import payload
from .test_training import WORKLOADS, no_gpu, settled, store, working

__all__ = ["no_gpu", "store"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]

TINY = {"width": 16, "inner": 32, "heads": 2, "layers": 1, "least_steps": 60, "most_steps": 60}
KNOWN = "session 7 opened for user3 on 10.0.0.9"
FOREIGN = "kernel panic: unable to mount root filesystem"


def test_from_the_watchlist_to_a_verdict(served, tasks, peer, settings):
    settings.AIOPS_TRAINING_PARAMETERS = TINY
    for subject in ("inferenced_logs", "gpu_trainingjob_status"):
        peer.listen(subject)
    work = working(tasks)
    served(TrainingController(), GpuController(), Preprocessing(), WorkloadDrain(), Inference())
    assert gateway.request_training(WORKLOADS) == "training job submitted"
    run = work(settled)
    assert run.state == "completed", run.reason
    assert ModelVersion.objects.get(serving=True).manifest
    assert peer.wait("gpu_trainingjob_status", 2) == [b"JobStart", b"JobEnd"]
    known, foreign = judged(peer, work, known=KNOWN, foreign=FOREIGN)
    assert (known.anomaly_level, known.inference_model) == ("Normal", "opnilog")
    assert foreign.anomaly_level == "Anomaly"
    assert known.opnilog_confidence > foreign.opnilog_confidence
    (again,) = judged(peer, work, again=KNOWN.replace("7", "8"))
    assert (again.anomaly_level, again.inference_model) == ("Normal", "drain")
    assert again.template_cluster_id == known.template_cluster_id
    assert gateway.request_training({}) == "model reset"
    work(lambda: not ModelVersion.objects.filter(serving=True).exists())


def judged(peer, work, **lines: str) -> list[wire.Payload]:
    """Sends the lines as the ingest plug-in does; their verdicts, once all are there."""
    for name, log in lines.items():
        peer.publish("raw_logs", wire.encode_one(payload(_id=name, log=log)))

    def verdicts():
        found = {item._id: item for data in peer.heard["inferenced_logs"] for item in wire.decode(data)}
        return [found[name] for name in lines] if set(lines) <= set(found) else None

    return work(verdicts)
