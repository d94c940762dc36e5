"""Training controller: decides what a new watchlist needs, guards the GPU, sends lines to it or to the CPU.

The decision follows a state, not a message: `step` compares what was requested (the gateway's key) with what was
decided last (our own key) and continues from there, after a message, and every two seconds while something is left to
do or a key has changed a short while ago. So a message may be lost, doubled or late, a request waits while another
training runs, and several replicas do no harm.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid as uuids
from collections.abc import Iterator

from aiops import lifecycle
from aiops.training import decisions, requests, training_data
from aiops.wire import gpu_info, kv, lease, payloads, subjects, watchlist
from kernel import bus
from kernel.errors import Fault
from kernel.messages import Message
from kernel.serve import Calm, Reply, Route

from . import base

log = logging.getLogger(__name__)

STEP_EVERY_S = 2.0
LOOK_EVERY_S = 3.0
LOOK_TIMEOUT_S = 2.0


class TrainingController:
    name = "training-controller"
    serial = False

    def __init__(self, ask=bus.request, send=bus.send):
        self.ask, self.send = ask, send
        self.busy = True  # until `look` has run
        self.has_gpus = self.gpu_ready = False
        self.beginning = self.begun = 0  # trainings that take the lease now, and those that have
        self.facts = threading.Lock()
        self.lock = threading.Lock()
        shared = "controllers"
        self.subjects = {
            subjects.TRAIN_MODEL: Route(self.train_model, shared),
            subjects.TRAIN: Route(self.train, shared),
            subjects.GPU_INFERENCE: Route(self.offer, shared),
            subjects.GPU_JOB_STATUS: Route(self.job_status),
            subjects.GPU_JOB_STATUS_ALSO: Route(self.job_status),
            subjects.MODEL_UPDATE: Route(self.model_update),
            subjects.MODEL_STATUS: Route(self.model_status, shared),
            subjects.WORKLOAD_PARAMETERS: Route(self.workload_parameters, shared),
        }
        self.requests, self.trainer = Calm(), Calm()
        self.keys = (
            (subjects.PARAMETERS_BUCKET, subjects.PARAMETERS, self.requests.stir),
            (subjects.OWN_BUCKET, subjects.OWN_GPU, self.trainer.stir),
        )
        self.ticks = ((STEP_EVERY_S, self.step, self.requests.is_due), (LOOK_EVERY_S, self.look, self.is_look_due))

    def start(self) -> None:
        kv.ensure()

    # --- requests --------------------------------------------------------------------------------------------------
    def train_model(self, data: bytes) -> Reply:
        """Answer before any work. G3 sends uuid and workloads (none: reset), G1 the bare map, `{}` resets."""
        body = base.read_json(data)
        g3 = isinstance(body.get("uuid"), str) and set(body) <= {"uuid", "workloads"}
        uuid = body["uuid"] if g3 else ""
        workloads = watchlist.check((body.get("workloads") or {}) if g3 else body)

        def work() -> None:
            self._note(uuid, workloads)
            self.step()

        return Reply(subjects.SUBMITTED if workloads else subjects.MODEL_RESET, after=work)

    @staticmethod
    def _note(uuid: str, workloads: dict) -> None:
        """Store a request whose sender writes no key (G1, a reset by `{}`).

        A G3 gateway writes its key before it sends the request, and the key counts, not the message, which may be late.
        """
        if not uuid or kv.parameters() is None:
            kv.put_parameters(uuid or str(uuids.uuid4()), workloads)

    def model_status(self, data: bytes) -> Reply:
        current = lease.current()
        run = lifecycle.find(current.get("uuid") or "")
        if lease.is_live(current) and (run is None or run.tenant_id is None):  # of the platform's model
            return Reply(subjects.TRAINING.encode())
        trained = lifecycle.serving() is not None or bool(kv.last_trained().workloads)
        return Reply((subjects.COMPLETED if trained else subjects.NOT_STARTED).encode())

    def workload_parameters(self, data: bytes) -> Reply:
        asked = kv.parameters()
        return Reply(base.dump(asked.workloads if asked else {}))

    def offer(self, data: bytes) -> Reply:
        """Answer from facts that `look` keeps: at once, whatever the other handlers do."""
        payloads.decode(data)
        if self.busy or not self.gpu_ready:
            return Reply(subjects.NO)
        return Reply(subjects.YES, before=[(subjects.GPU_INFERENCE_INTERNAL, data)])

    # --- training --------------------------------------------------------------------------------------------------
    def step(self) -> None:
        """Continue with the last request. One call at a time here; replicas do not disturb each other."""
        if not self.lock.acquire(blocking=False):
            return
        left = True
        try:
            left = decisions.step(self.send, self.gpu_runs)
        finally:
            self.lock.release()
            if left:
                self.requests.stir()

    def train(self, data: bytes) -> list[tuple[str, bytes]] | None:
        """Start the training of `train`, unless one runs or this request has been trained."""
        payload = training_data.check(base.read_json(data))
        uuid = lifecycle.uuid_of(payload)
        with self._begins():
            acquired = lifecycle.find(uuid) is None and lease.acquire(uuid, "training controller")
        if not acquired:
            log.info("%s: %s is already being trained, or another training runs", subjects.TRAIN, uuid)
            return None
        order = training_data.internal(payload)
        return [(subjects.GPU_JOB_STATUS, subjects.JOB_START), (subjects.GPU_TRAINING_INTERNAL, base.dump(order))]

    def job_status(self, data: bytes) -> None:
        """Keep the lease of trainers that are not ours; our own trainings keep theirs."""
        if data == subjects.JOB_START:
            with self._begins():
                lease.acquire("", "another training controller", lease.FOREIGN_S)
        elif data == subjects.JOB_END:
            current = lease.current()
            if lease.is_live(current) and lifecycle.find(current.get("uuid") or "") is None:
                lease.end(current.get("uuid") or "")
            self.busy = lease.is_live(lease.current())
        else:
            raise ValueError(f"{data[:40]!r} is neither JobStart nor JobEnd")

    @contextlib.contextmanager
    def _begins(self) -> Iterator[None]:
        """Refuse offers while the lease is taken and afterwards, whatever `poll` has read of it before."""
        with self.facts:
            self.beginning, self.busy = self.beginning + 1, True
        try:
            yield
        finally:
            with self.facts:
                self.beginning, self.begun = self.beginning - 1, self.begun + 1

    def model_update(self, data: bytes) -> None:
        """Record that a trainer that is not ours has taken an order: ours has a row before it announces itself."""
        current = lease.current()
        mine = lifecycle.find(current.get("uuid") or "") is not None
        if base.read_json(data).get("status") == subjects.TRAINING and lease.is_live(current) and not mine:
            lease.renew(current.get("uuid") or "", lease.FOREIGN, lease.FOREIGN_S)

    # --- facts -----------------------------------------------------------------------------------------------------
    def is_look_due(self) -> bool:
        return self.has_gpus or self.trainer.is_due()

    def look(self) -> None:
        try:
            self.poll()
        except Fault:
            self.trainer.stir()
            raise

    def poll(self) -> None:
        """Update what `offer` answers from; end the lease of a silent trainer that has no row here.

        Another trainer reports nothing while it fetches: that its GPU controller answers keeps its lease.
        """
        begun, current = self.begun, lease.current()
        if lease.is_fetching(current) and self.gpu_runs(LOOK_TIMEOUT_S):
            lease.renew(current.get("uuid") or "", lease.FOREIGN, lease.FOREIGN_S)
            current = lease.current()
        if lease.is_overdue(current) and lifecycle.find(current.get("uuid") or "") is None:
            if lease.end(current.get("uuid") or ""):
                self.send([(subjects.GPU_JOB_STATUS, subjects.JOB_END)])
                requests.failed(
                    current.get("uuid") or "", Message("the trainer stopped reporting and its lease expired")
                )
            current = {}
        live = lease.is_live(current)
        with self.facts:
            if live or (begun == self.begun and not self.beginning):  # else one has begun since the lease was read
                self.busy = live
        if self.busy:
            self.trainer.stir()
        self.has_gpus = gpu_info.has_gpus()
        self.gpu_ready = self.has_gpus and (self.busy or self.gpu_runs(LOOK_TIMEOUT_S))

    def gpu_runs(self, timeout_s: float = subjects.RUNNING_TIMEOUT_S) -> bool:
        """Return whether a GPU controller answers."""
        try:
            return self.ask(subjects.GPU_RUNNING, subjects.CHECK_UP, timeout_s) == subjects.RUNNING
        except Fault:
            return False
