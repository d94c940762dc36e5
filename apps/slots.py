"""Which files each of an application's runs writes: its log, its counts and its records. No two runs have the same."""

from __future__ import annotations

from .models import Application, Replica, Rollout


def free(app: Application) -> int:
    """Return a number that no other run of the locked application uses."""
    used = {app.slot, *Replica.objects.filter(app=app).values_list("slot", flat=True)}
    used.update(Rollout.objects.filter(app=app).exclude(slot=None).values_list("slot", flat=True))
    return next(number for number in range(len(used) + 1) if number not in used)


def log_name(slot: int) -> str:
    """Return the name of the log file; the first two are those of earlier releases."""
    return ("app.log", "next.log")[slot] if slot < 2 else f"replica-{slot}.log"


def traffic_name(slot: int) -> str:
    """Return the name of the file in which the process counts requests."""
    return ("traffic.json", "traffic-next.json")[slot] if slot < 2 else f"traffic-{slot}.json"


def records_name(run_name: str) -> str:
    """Return the beginning of the names of the files in which a process records requests."""
    return f"records-{run_name}"


def tokens_name(run_name: str) -> str:
    """Return the name of the file in which the process of a language model counts tokens."""
    return f"tokens-{run_name}.json"
