"""Programs that the owner of a running job starts in it, such as a shell: who may, and a row of the audit log for each.

Called by consumers.
"""

from __future__ import annotations

from django.conf import settings

import runners
from accounts import tokens
from accounts.models import User
from kernel import masking, sanitize
from kernel.errors import Fault, Refused
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message, word
from kernel.models import record_change
from runners.attaching import Attached, Wanted

from .models import Job, State

MAX_WORDS, MAX_COMMAND = 1000, 32 << 10  # words of a command, and their characters together
MAX_TERMINAL = 40  # characters of its kind
MAX_SIDE = 0xFFFF  # rows, columns
MAX_SHOWN = 500  # characters of a command in the audit log
FIELDS = {"command", "terminal", "rows", "columns", "worker"}
SHELL = "a shell"


def wanted(given: object) -> Wanted:
    """Return the program that a client asks for. Raises Refused, which names the field."""
    if not isinstance(given, dict):
        raise Refused("must be an object", field="program")
    for name in given.keys() - FIELDS:
        raise Refused("unknown field", field=sanitize.text(str(name))[:100])
    command, terminal = given.get("command", []), given.get("terminal", "")
    right = isinstance(command, list) and all(isinstance(each, str) and "\0" not in each for each in command)
    if not right or len(command) > MAX_WORDS or sum(map(len, command)) > MAX_COMMAND or (command and not command[0]):
        raise Refused("must be a list of words; an empty one starts a shell", field="command")
    if not isinstance(terminal, str) or len(terminal) > MAX_TERMINAL or not (terminal.isprintable()):
        raise Refused("must be the kind of a terminal, such as xterm-256color", field="terminal")
    if not command and not terminal:
        raise Refused("a shell needs a terminal; name its kind, or give a command", field="terminal")
    numbers = {}
    for name, usual, least in (("rows", 24, 1), ("columns", 80, 1), ("worker", 0, 0)):
        try:
            numbers[name] = number(given.get(name, usual), least)
        except ValueError:
            raise Refused(
                "must be an integer from %(least)s to %(most)s", field=name, least=least, most=MAX_SIDE
            ) from None
    return Wanted(tuple(command), terminal, **numbers)


def number(given: object, least: int = 1) -> int:
    """Return a number of rows or columns of a terminal, or of a worker, from `least` on. Raises ValueError."""
    if type(given) is not int or not least <= given <= MAX_SIDE:
        raise ValueError("out of range")
    return given


def owned_job(user: User, name: str) -> Job:
    """Return the user's running job. Raises Missing, Refused where the platform does not allow it, WrongState."""
    job = Job.objects.select_related("tenant").filter(user=user, name=name).first()
    if job is None:
        raise Missing("job")
    if not settings.JOB_ATTACH:
        raise Refused("attaching to jobs is switched off on this platform (MLP_JOB_ATTACH)")
    if not job.tenant.allows_attach:
        raise Refused("attaching to jobs is not allowed in the tenant %(tenant)s", tenant=job.tenant.name)
    _running(job)
    return job


def begin(job: Job, program: Wanted, *, by: str) -> tuple[Attached, str]:
    """Start a program in the job; return it and the name of its run. Each is a row of the audit log, also one that
    cannot be executed. Raises Missing, Refused, WrongState, Fault.
    """
    if program.worker >= job.workers:
        raise Refused("there is none; the job has %(count)s", field="worker", count=job.workers)
    words = masking.command(program.command, masking.secrets_in(job.env)) or [SHELL]
    shown = sanitize.text(" ".join(words))
    shown = shown if len(shown) <= MAX_SHOWN else shown[: MAX_SHOWN - 1] + "…"
    with locked(Job, pk=job.pk) as row:
        _running(row)
        reason = Message("started in the job: %(command)s", command=shown)
        record_change(row, transition="attach", source=row.state, target=row.state, by=by, reason=reason)
        run = row.run_name
    try:
        return runners.get().attach(run, program), run
    except runners.RunnerError as problem:
        raise Fault(problem.msg) from None


def still(job: Job, run: str, token: str) -> bool:
    """Return whether a program may go on: its caller's token is valid, the job is theirs and has this run, and the
    policies allow it.
    """
    holder = tokens.user_holder(token)
    if holder is None or holder.user_id != job.user_id:
        return False
    rows = Job.objects.filter(pk=job.pk, run_name=run, tenant__allows_attach=True).exclude(state=State.DELETING)
    return settings.JOB_ATTACH and rows.exists()


def _running(job: Job) -> None:
    if job.is_client:
        raise WrongState("the run is reported from elsewhere; the platform has no process of it")
    if job.state != State.RUNNING or not job.run_name:
        raise WrongState("the job is %(state)s; only a running job can be attached to", state=word(job.state))
