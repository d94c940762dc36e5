"""The verbs of jobs.idle and jobs.preemption, called on rows that `job` makes, and their effects.

Part of test_row_locks.py and verb_effects.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

from django.utils import timezone

from jobs import idle, preemption
from jobs.models import Job

Case = tuple[str, Job, Callable[[], object]]


class Effect(NamedTuple):
    """The state of the row (`gone` when it no longer exists) and of its resource request, and what is not empty of:

    the tasks enqueued after the commit with their queue; the groups of open pages that are notified, where `.pk` is the
    row's; the other fields that changed; the rows of its history with their author and reason.
    """

    state: str
    request: str = "-"
    tasks: str = ""
    groups: str = ""
    fields: str = ""
    history: str = ""


def of_idle(job: Callable[..., Job]) -> Iterator[Case]:
    now = timezone.now()
    warned = {"idle_warned": now - timedelta(days=1), "idle_kind": "cpu"}
    for verb, fields, call in [
        ("warn", {}, lambda row: idle.warn(row.pk, "none", "cpu", now)),
        ("warn: another run", {}, lambda row: idle.warn(row.pk, "another", "cpu", now)),
        ("warn: exempt", {"idle_exempt": True}, lambda row: idle.warn(row.pk, "none", "cpu", now)),
        ("withdraw", warned, lambda row: idle.withdraw(row.pk)),
        ("withdraw: not warned", {}, lambda row: idle.withdraw(row.pk)),
        ("stop", warned, lambda row: idle.stop(row.pk, "none", now)),
        ("stop: another run", warned, lambda row: idle.stop(row.pk, "another", now)),
        ("stop: warning withdrawn", {}, lambda row: idle.stop(row.pk, "none", now)),
        ("exempt", {}, lambda row: idle.exempt(row, by="test")),
        ("exempt: warned", warned, lambda row: idle.exempt(row, by="test")),
    ]:
        row = job(**fields)
        yield verb, row, lambda call=call, row=row: call(row)


def of_preemption(job: Callable[..., Job]) -> Iterator[Case]:
    now = timezone.now()
    taken = {"stepping_back": now, "run_started": True}
    may, stepping = {"preemptible": True, "run_started": True}, {"preemptible": True, **taken}
    waiting = job(state="creating", reserved=False, run_name="", attempt=0)
    for verb, fields, call in [
        ("ask", may, lambda row: preemption.ask(row.pk, waiting.pk)),
        ("ask: not preemptible", {"run_started": True}, lambda row: preemption.ask(row.pk, waiting.pk)),
        ("ask: of an ended job", {**may, "state": "error"}, lambda row: preemption.ask(row.pk, waiting.pk)),
        ("ask: for one that does not wait", may, lambda row: preemption.ask(row.pk, row.pk)),
        ("displace", {}, lambda row: preemption.displace(row.pk, "none", now.timestamp())),
        ("displace: another run", {}, lambda row: preemption.displace(row.pk, "another", now.timestamp())),
        ("displace: again", taken, lambda row: preemption.displace(row.pk, "none", now.timestamp())),
        ("displace: of a waiting job", {"state": "creating"},
         lambda row: preemption.displace(row.pk, "none", now.timestamp())),
        ("requeue", stepping, lambda row: preemption.requeue(row.pk, "none", None)),
        ("requeue: displaced", taken, lambda row: preemption.requeue(row.pk, "none", None)),
        ("requeue: not asked", {}, lambda row: preemption.requeue(row.pk, "none", None)),
        ("requeue: another run", stepping, lambda row: preemption.requeue(row.pk, "another", None)),
        ("requeue: ended before", stepping, lambda row: preemption.requeue(row.pk, "none", now.timestamp() - 10)),
        ("requeue: of an ended job", {**stepping, "state": "error"},
         lambda row: preemption.requeue(row.pk, "none", None)),
    ]:  # fmt: skip
        row = job(**fields)
        yield verb, row, lambda call=call, row=row: call(row)


IDLE = {
    "warn": Effect(
        "running",
        "tried",
        groups="job.pk, pages",
        fields="idle_warned, idle_kind",
        history="warn by reconcile: idle: less than 5 % of its CPU used for None min; unless it is used again, "
        "the job is stopped in 10 min",
    ),
    "warn: another run": Effect("running", "tried"),
    "warn: exempt": Effect("running", "tried"),
    "withdraw": Effect(
        "running", "tried", groups="pages", fields="idle_warned", history="warn by reconcile: no longer idle"
    ),
    "withdraw: not warned": Effect("running", "tried"),
    "stop": Effect(
        "error",
        "tried",
        tasks="jobs.clean@default, jobs.diagnose@default",
        groups="job.pk, pages",
        fields="outcome, idle_warned, reason, ended",
        history="fail by reconcile: idle: less than 5 % of its CPU used for None min",
    ),
    "stop: another run": Effect("running", "tried"),
    "stop: warning withdrawn": Effect("running", "tried"),
    "exempt": Effect(
        "running",
        "tried",
        groups="pages",
        fields="idle_exempt",
        history="exempt by test: exempt from the idle policy",
    ),
    "exempt: warned": Effect(
        "running",
        "tried",
        groups="pages",
        fields="idle_warned, idle_exempt",
        history="exempt by test: exempt from the idle policy, warn by reconcile: no longer idle",
    ),
}

PREEMPTION = {
    "ask": Effect(
        "running",
        "tried",
        tasks="jobs.step_back@default",
        groups="pages",
        fields="stepping_back, preempted_for_id",
    ),
    "ask: not preemptible": Effect("running", "tried"),
    "ask: of an ended job": Effect("error", "tried"),
    "ask: for one that does not wait": Effect("running", "tried"),
    "displace": Effect("running", "tried", tasks="jobs.step_back@default", groups="pages", fields="stepping_back"),
    "displace: another run": Effect("running", "tried"),
    "displace: again": Effect("running", "tried"),
    "displace: of a waiting job": Effect("creating", "tried"),
    "requeue": Effect(
        "creating",
        "-",
        tasks="jobs.admit@default",
        groups="job.pk, pages",
        fields="preemptions, stepping_back, requeued, reserved, attempt, run_name, run_started, not_before",
        history="preempt by reconcile: preempted for another job",
    ),
    "requeue: displaced": Effect(
        "creating",
        "-",
        groups="job.pk, pages",
        fields="preemptions, stepping_back, requeued, reserved, attempt, run_name, run_started, not_before",
        history="preempt by reconcile: preempted by the cluster",
    ),
    "requeue: not asked": Effect("running", "tried"),
    "requeue: another run": Effect("running", "tried"),
    "requeue: ended before": Effect("running", "tried"),
    "requeue: of an ended job": Effect("error", "tried"),
}
