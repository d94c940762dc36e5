"""What Triton's clients ask of a model besides inference: its configuration, the index of models and statistics.

Source: Triton's extension_model_configuration.md, extension_model_repository.md and extension_statistics.md.
"""

from __future__ import annotations

import time

KINDS = {"BYTES": "TYPE_STRING"}  # the others have their own name after TYPE_
STAGES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


class Statistics:
    """Counts and times, in nanoseconds, since the start of the process. Used by the event loop alone."""

    def __init__(self):
        self.stages = {name: [0, 0] for name in STAGES}  # how often, and how long together
        self.inferences = self.executions = self.last = 0

    def executed(self, waited: list[int], took: int) -> None:
        """Count a computation of several requests: how long each has waited for it, and how long it took."""
        self.executions += 1
        self.last = int(time.time() * 1000)
        for queued in waited:
            self.add("queue", queued)
            self.add("compute_infer", took)

    def answered(self, good: bool, took: int) -> None:
        """Count a request that was computed, or has failed."""
        self.inferences += good
        self.add("success" if good else "fail", took)

    def add(self, stage: str, took: int) -> None:
        """Add one time to those of a stage."""
        self.stages[stage][0] += 1
        self.stages[stage][1] += took

    def shown(self, name: str) -> dict:
        """Return what the call answers."""
        stages = {stage: {"count": count, "ns": took} for stage, (count, took) in self.stages.items()}
        statistics = {"name": name, "version": "1", "last_inference": self.last, "inference_count": self.inferences}
        return {
            "model_stats": [
                {**statistics, "execution_count": self.executions, "inference_stats": stages, "batch_stats": []}
            ]
        }


def config(name: str, model) -> dict:
    """Return a model's configuration. Its dimensions are whole shapes: batches are not the client's matter."""
    return {
        "name": name,
        "platform": model.format,
        "backend": "mlp-serving",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": 0,
        "input": [_tensor(spec) for spec in model.inputs],
        "output": [_tensor(output) for output in model.outputs],
        "instance_group": [{"name": name, "count": model.concurrency}],
    }


def _tensor(spec: dict) -> dict:
    return {
        "name": spec["name"],
        "data_type": KINDS.get(spec["datatype"], f"TYPE_{spec['datatype']}"),
        "dims": list(spec["shape"]),
    }


def index(name: str) -> list[dict]:
    """Return the index of the models: the one that is served."""
    return [{"name": name, "version": "1", "state": "READY", "reason": ""}]
