"""GPU controller: takes orders to train (a separate run does the work), and scores on the GPU while it is free.

It never trains itself, so it answers `gpu_service_running` at any time. One order makes one TrainingRun, however many
replicas receive it and however often it is repeated.
"""

from __future__ import annotations

import logging

from aiops import lifecycle
from aiops.training import training_data
from aiops.wire import gpu_info, subjects
from kernel.serve import Reply, Route

from . import base
from .scoring import ServingModel

log = logging.getLogger(__name__)


class GpuController:
    name = "gpu-controller"
    serial = False

    def __init__(self):
        self.model = ServingModel()
        self.subjects = {
            subjects.GPU_RUNNING: Route(self.running),
            subjects.GPU_TRAINING_INTERNAL: Route(self.train),
            subjects.GPU_INFERENCE_INTERNAL: Route(self.infer, "gpu", 8),
            subjects.MODEL_UPDATE: Route(self.model_update),
        }
        self.ticks = ((5.0, self.poll, self.model.is_loaded),)

    def running(self, data: bytes) -> Reply:
        return Reply(subjects.RUNNING)

    def poll(self) -> None:
        if gpu_info.local_count():
            self.model.poll()

    def model_update(self, data: bytes) -> None:
        base.read_json(data)
        self.poll()

    def train(self, data: bytes) -> list[tuple[str, bytes]] | None:
        order = base.read_json(data)
        if order.get("model") != subjects.NULOG_TRAIN:
            log.info("%s: model %r is for another trainer", subjects.GPU_TRAINING_INTERNAL, order.get("model"))
            return None
        training_data.check(order.get("payload"))
        run, created = lifecycle.create_run(order=order, by="training controller")
        if not created:
            log.info("training %s is known already", run.uuid)
            return None
        return [(subjects.MODEL_UPDATE, base.dump({"status": subjects.TRAINING}))]

    def infer(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        return self.model.judge(base.items_of(subjects.GPU_INFERENCE_INTERNAL, messages))
