"""The services by name: what `manage.py aiops [name …]` can run; it runs all of them when none is named.

By dotted path, so that a process loads only what it runs: torch is large.
"""

from __future__ import annotations

from django.utils.module_loading import import_string

SERVICES = {
    "intake": "aiops.services.raw_logs.Intake",
    "follower": "aiops.services.follower.FollowerService",
    "write-back": "aiops.services.writeback.WriteBack",
    "housekeeping": "aiops.services.housekeeping.Housekeeping",
    "rates": "aiops.services.rates.Rates",
    "sessions": "aiops.services.sessions.Sessions",
    "gateway": "aiops.services.gateway.Gateway",
    "preprocessing": "aiops.services.preprocess.Preprocessing",
    "drain": "aiops.services.drain.WorkloadDrain",
    "inference": "aiops.services.inference.Inference",
    "gpu-controller": "aiops.services.gpu_controller.GpuController",
    "models": "aiops.services.model_exchange.ModelExchange",
    "training-controller": "aiops.services.training_controller.TrainingController",
}


def make(name: str):
    """Return a new instance of the service of that name."""
    service = import_string(SERVICES[name])()
    assert service.name == name, f"{SERVICES[name]} is called {service.name}"
    return service
