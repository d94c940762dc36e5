"""Finds why a job failed and stores it once: the last exception of its log, the line, the rule that explains it.

When the runner ends a run, the diagnosis is made before the failure is stored, in the same transaction, so that the
notification contains it. Any other failure is diagnosed by a task, which `reconcile` repeats until it is done.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress

from accounts.models import Notice
from jobs import logs
from jobs.code import reading
from jobs.environment import SCRIPTS
from jobs.models import Action, Diagnosis, Job, State
from kernel import after_commit, sanitize, storage
from kernel.errors import Refused
from kernel.locking import Missing, locked
from kernel.messages import Message, word
from kernel.textlog.exceptions import Frame, Trace, last_exception

from . import facts as known
from . import rules, shipped_packages

log = logging.getLogger(__name__)

READ = 64 << 10  # bytes of the log's end
SEARCHED = 16 << 10  # characters of it, for rules that search in the log
LAST_LINES = 2 << 10  # characters, where there is no exception
MAX_SCRIPT = 2 << 20
WORKER = re.compile(r"worker (\d{1,4}): ")
KILLED = re.compile(r"killed by signal|out of memory|needed more than|wrote more than|no longer exists|could not ")


def examine(job: Job, reason: str) -> dict:
    """Return the columns of the job's diagnosis. Never raises: a failure without an explanation is stored as such."""
    try:
        return _examine(job, reason)
    except Exception:  # a failure must be recorded, whatever its log has done to us
        log.exception("the failure of %s could not be examined", job)
        return _unknown(job, reason)


def _examine(job: Job, reason: str) -> dict:
    text = logs.tail(job, READ)[0]
    text = known.without_host_paths(job, sanitize.text(text))
    first_line = str(reason).partition("\n")[0]
    worker = WORKER.search(first_line)
    # the log goes on over attempts: a run that was killed has not ended by an earlier one's exception
    trace = None if KILLED.search(first_line) else last_exception(text, int(worker[1]) if worker else None)
    diagnosis = {"attempt": job.attempt, **_of_trace(job, trace)}
    shown = "\n".join(filter(None, [trace.cause, trace.short])) if trace else text[-LAST_LINES:]
    of_packages = shipped_packages.FAILED in first_line  # the installer's words are below it; elsewhere the script's
    texts = {"exception": shown, "log": text[-SEARCHED:], "reason": str(reason) if of_packages else first_line}
    match = rules.first_match(texts, known.situations(job))
    if match is None:
        return {**diagnosis, **_unexplained(job, trace, first_line), "facts": _cause(trace)}
    rule, groups = match
    facts = known.of_match(job, rule.key, groups, text)
    action = known.action_of(job, rule.action, facts)
    return {**diagnosis, "rule": rule.key, **rule.words(facts), "action": action, "facts": {**facts, **_cause(trace)}}


def _of_trace(job: Job, trace: Trace | None) -> dict:
    if trace is None:
        return {}
    fields = {"error": trace.error[:200], "exception": trace.text}
    place = trace.place((SCRIPTS,))
    if place is not None:
        file = place.file.removeprefix(f"{SCRIPTS}/")
        fields |= {"file": file[:300], "line": place.line, "code": place.code or _line_of(job, file, place)}
    return fields


def _cause(trace: Trace | None) -> dict:
    return {"cause": trace.cause} if trace is not None and trace.cause else {}


def _line_of(job: Job, file: str, place: Frame) -> str:
    """Return the source line of the user's script, if the traceback lacks it."""
    if file == place.file:
        return ""  # not below the scripts
    with suppress(Refused, OSError):
        kept = reading.manifest_of(job)
        script = reading.open_file(job, file) if kept else storage.open_file(storage.home_dir(job.user.username), file)
        if script is not None:
            with script:
                lines = script.read(MAX_SCRIPT).decode("utf-8", "replace").split("\n")
            return sanitize.text(lines[place.line - 1].strip()[:500]) if 0 < place.line <= len(lines) else ""
    return ""


def _unexplained(job: Job, trace: Trace | None, first_line: str) -> dict:
    """Return the texts for a failure that no rule matches."""
    if trace is not None:
        return {
            "title": Message("The script raised %(error)s", error=trace.error),
            "explanation": word(trace.message[:1000]) if trace.message else "",
            "action": Action.EDIT,
        }
    return _unknown(job, first_line)


def _unknown(job: Job, reason: str) -> dict:
    first_line = str(reason).partition("\n")[0][:300]
    return {
        "attempt": job.attempt,
        "title": Message("The script ended with an error"),
        "explanation": Message(
            "The log has no exception (%(reason)s). The end of the log may show the cause.", reason=first_line
        ),
        "action": Action.EDIT,
    }


def keep(job: Job, diagnosis: dict) -> None:
    """Store the diagnosis of a failed job, in the transaction of the caller, which has locked the job."""
    Diagnosis.objects.update_or_create(job=job, defaults=diagnosis)
    Job.objects.filter(pk=job.pk).update(diagnosed=True)
    notice = Notice.objects.filter(user=job.user, kind="job", name=job.name, event="error").order_by("-pk").first()
    if notice is not None and not notice.advice:
        notice.advice = diagnosis["title"]
        notice.save(update_fields=["advice"])
    after_commit.changed(job.user.username, "job", job.name)


def diagnose(pk: int) -> None:
    """Store the diagnosis of a failed job, unless it has one. Idempotent."""
    job = Job.objects.select_related("user", "tenant").filter(pk=pk, state=State.ERROR, diagnosed=False).first()
    if job is None:
        return
    diagnosis = examine(job, job.reason)
    with suppress(Missing), locked(Job, pk=pk) as row:
        if row.state == State.ERROR and not row.diagnosed:
            keep(row, diagnosis)


def diagnosis_of(job: Job) -> Diagnosis | None:
    """Return the diagnosis of a job; None if there is none."""
    return Diagnosis.objects.filter(job_id=job.pk).first()


def undiagnosed(most: int) -> list[int]:
    """Return the failed jobs without a diagnosis, newest first."""
    rows = Job.objects.filter(state=State.ERROR, diagnosed=False).order_by("-pk")
    return list(rows.values_list("pk", flat=True)[:most])
