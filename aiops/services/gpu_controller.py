"""GPU controller: takes orders to train (a run of its own does the work).

It never trains itself, so it answers `gpu_service_running` at any time. One order makes one TrainingRun, however many
replicas hear it and however often it comes.
"""

from __future__ import annotations

import logging

from aiops import lifecycle, subjects, training_data
from mlp.kernel.serve import Reply, Route

from . import base

log = logging.getLogger(__name__)


class GpuController:
    name = "gpu-controller"
    serial = False

    def __init__(self):
        self.subjects = {
            subjects.GPU_RUNNING: Route(self.running),
            subjects.GPU_TRAINING_INTERNAL: Route(self.train),
        }

    def running(self, data: bytes) -> Reply:
        return Reply(subjects.RUNNING)

    def train(self, data: bytes) -> list[tuple[str, bytes]] | None:
        order = base.read_json(data)
        if order.get("model") != subjects.NULOG_TRAIN:
            log.info("%s: model %r is not ours to train", subjects.GPU_TRAINING_INTERNAL, order.get("model"))
            return None
        training_data.check(order.get("payload"))
        run, created = lifecycle.create_run(order=order, by="training controller")
        if not created:
            log.info("training %s is known already", run.uuid)
            return None
        return [(subjects.MODEL_UPDATE, base.dump({"status": subjects.TRAINING}))]
