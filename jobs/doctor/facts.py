"""What is known of a failed job besides its log. It fills placeholders of explanations and decides which button is
offered.
"""

from __future__ import annotations

import re

from django.conf import settings

import runners
from jobs import environment
from jobs.models import Action, Job
from kernel import storage
from kernel.messages import Message
from resources.models import Network
from snapshots import tree

from .packages import package_of

EPOCH = re.compile(r"(?i)\bepoch\s{0,3}[:=#/]?\s{0,3}(\d{1,9})")
NOT_A_NUMBER = re.compile(r"(?i)\bnan\b")


def base(job: Job) -> dict:
    """Return the facts that every explanation may use."""
    return {
        "entry": job.entry,
        "ram": job.ram,
        "gpu": job.gpu,
        "runtime": job.get_runtime_display(),
        "network": runners.NETWORK_WORDS[job.network_policy],
    }


def situations(job: Job) -> set[str]:
    """Return the situations that a rule's `needs` may require."""
    situation_names = set()
    if job.network_policy != Network.OPEN:
        situation_names.add("network_closed")
    if job.datasets:
        situation_names.add("has_dataset")
    return situation_names


def of_match(job: Job, rule_key: str, groups: dict, log: str) -> dict:
    """Return the facts of a match: the pattern's groups and what is derived from them."""
    facts = {**base(job), **groups}
    if groups.get("module"):
        facts["package"] = package_of(groups["module"])
    if rule_key == "nan":
        facts |= _when_nan(job, log)
    return facts


def _when_nan(job: Job, log: str) -> dict:
    """Return the epoch of the first NaN: from the log, else the one after the last report."""
    epoch = epoch_of_nan(log)
    if epoch is not None:
        return {"epoch": epoch, "when": Message("first seen in epoch %(epoch)s", epoch=epoch)}
    last = job.metrics.order_by("-seq").values_list("epoch", flat=True).first()
    if last is None:
        return {"when": Message("the epoch is not known")}
    return {"epoch": last + 1, "when": Message("after epoch %(epoch)s, the last one reported", epoch=last)}


def epoch_of_nan(log: str) -> int | None:
    """Return the epoch that the log names at its first NaN, or last before it."""
    epoch = None
    for line in log.split("\n"):
        match = EPOCH.search(line[:2000])
        if match:
            epoch = int(match[1])
        if NOT_A_NUMBER.search(line[:2000]):
            return epoch
    return None


def action_of(job: Job, action: str, facts: dict) -> str:
    """Return the action that is offered for this job, and complete the facts it needs; none if it would not help."""
    if action == Action.MORE_MEMORY:
        most = min(settings.MAX_RAM_MIB, job.tenant.ram // max(1, job.workers))
        facts["more_ram"] = min(2 * job.ram, most)
        return action if facts["more_ram"] > job.ram else Action.NONE
    return action


def folders(job: Job) -> list[tuple[str, str]]:
    """Return the platform's folders with the paths that a run sees instead, the longest first."""
    user = job.user.username
    pairs = [
        (storage.root() / "run" / "datasets" / f"job-{job.pk}", environment.DATASETS),
        (storage.job_dir(user, job.name), environment.WORKSPACE),
        (storage.home_dir(user), environment.SCRIPTS),
        (storage.home_dir(user).parent, environment.DATASETS),
        (storage.root(), ""),
    ]
    if job.snapshot_id:
        seen = runners.get().place(storage.home_dir(user), environment.HOME)
        pairs.insert(2, (tree.place_of(user, job.snapshot.digest, seen), environment.SCRIPTS))
    return [(str(path), name) for path, name in pairs]


def without_host_paths(job: Job, text: str) -> str:
    """Return the text with the host's paths replaced by those that the run sees."""
    for path, name in folders(job):
        text = text.replace(path, name)
    return text
