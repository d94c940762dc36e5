"""The verbs of models: every change of state is made here. Called by api, pages, admin, launching and reconcile.

The tenant's rom is tried when the model is created, confirmed when it is ready, and released when it is erased.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter

from django.db import IntegrityError, transaction
from django.db.models import F, Prefetch
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.tenancy import members
from datasets.buckets import fetching
from datasets.buckets import rows as buckets
from jobs.artifacts.finished import finished_job
from jobs.models import EnvironmentVersion, Job
from jobs.packages.named import locating, references
from kernel import after_commit, broker, copying, disk, sanitize, trash
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, lock_row, locked
from kernel.messages import Message
from kernel.models import record_created
from kernel.outcomes import Outcome
from resources import tcc
from resources.models import Tenant

from . import external as outside
from . import lineage, packages
from .models import Model, State

APPLIER = "mm"
CANCELLED = Message("cancelled: its version was deleted")
STEADY = (State.READY, State.ERROR)
ABOUT_TEXTS, ABOUT_COUNTS = ("architecture", "quantization"), ("context", "parts")  # of a language model


def request_id(pk: int) -> str:
    """Return the id of the model's resource request."""
    return f"model:{pk}"


@dataclass(frozen=True)
class Origin:
    """The files that a model is to be made of: their source, the job they are from, their bytes, and the packages that
    the job had: its requirements and its environment. Those of an `external` one stay in the bucket.
    """

    src: str
    job: Job | None
    size: int
    requirements: str = ""
    packages: str = ""
    environment: EnvironmentVersion | None = None
    external: bool = False


def create_model(
    *, user, name: str, src: str, title: str = "", tenant: str | None = None, requirements: str = "",
    environment: str = "", external: bool = False, by: str,
) -> Model:  # fmt: skip
    """Create the row, reserve disk space for its files and enqueue the copy, or the list of those that are `external`.

    `requirements` are lines of a requirements file, in place of those that come with the source; `environment` names
    packages of the tenant in place of both: torch-cpu@3, or torch-cpu for the newest version. Raises Refused: the name
    is taken, the source does not exist, the job has not finished, not enough space, what is no requirement.
    Raises Fault, with nothing stored, when the task queue is not available.
    """
    members.chosen(user, tenant)
    wanted = packages.of_lines(requirements)
    origin = _origin(user, src, external)
    if wanted:
        origin = replace(origin, requirements=wanted, packages="", environment=None)
    if wanted and environment:
        raise Refused("give either packages or an environment", field="requirements")
    broker.require()
    with transaction.atomic():
        tenant_row = members.hold(user, tenant)
        if environment:
            version = references.held(tenant_row, environment)
            origin = replace(origin, requirements=locating.lines_of(version), packages="", environment=version)
        return add_model(user=user, tenant=tenant_row, name=name, title=title, origin=origin, by=by)


def _origin(user, src: str, external: bool) -> Origin:
    """Return the files of a source; those in a bucket are measured by their copy. Raises Refused, DiskFull."""
    if buckets.is_source(src):
        return Origin(src, None, fetching.check(user, src), external=external)
    if external:
        raise Refused(buckets.NOT_EXTERNAL, field="external")
    if outside.is_copy(src):
        model = outside.source(user, src)
        disk.require(model.size)
        return Origin(src, None, model.size, model.requirements, "", model.environment_version)
    kind, job_name, _path = copying.parse(src)
    return measured(user, src, finished_job(user, job_name) if kind == "jobs" else None)


def measured(user, src: str, job: Job | None = None) -> Origin:
    """Measure the files of a source; for `add_model`. Raises Refused where there are none, DiskFull where there is no
    room for them.
    """
    try:
        size = copying.size(copying.origin(user.username, src))
    except OSError:
        raise Refused("%(src)s cannot be read, or its path contains a symbolic link", field="src", src=src)
    if not size:
        raise Refused("%(src)s has no files, or only empty ones", field="src", src=src)
    disk.require(size)  # a file with holes may be longer than the disk
    return Origin(src, job, size, *packages.of_job(job), job.environment_version if job else None)


def add_model(*, user, tenant: Tenant, name: str, title: str = "", origin: Origin, by: str) -> Model:
    """Create a model in the caller's transaction, which holds the user in that tenant. Raises Refused."""
    try:
        with transaction.atomic():
            model = Model.objects.create(
                user=user, tenant=tenant, name=name, title=title, src=origin.src, size=origin.size,
                lineage=lineage.of_job(origin.job), external=origin.external,
                requirements=origin.requirements, packages=origin.packages,
                environment=origin.environment.reference if origin.environment else "",
                environment_version=origin.environment,
            )  # fmt: skip
            record_created(model, by=by)
            tcc.try_(
                id=request_id(model.pk), applier=APPLIER, request_type="request", tenant=tenant.name,
                owner=user.username, rom=origin.size,
            )  # fmt: skip
            after_commit.enqueue("models.copy", model.pk, queue="files")
    except IntegrityError as problem:
        if violated(problem) == "model_name_once_per_user":
            raise Refused(_taken(user, name), field="name")
        raise
    return model


def _taken(user, name: str) -> Message:
    """Return why the name is not free."""
    if Model.objects.filter(user=user, name=name).exclude(trashed=None).exists():
        return Message("you already have a model named %(name)s; it is in the trash", name=name)
    return Message("you already have a model named %(name)s", name=name)


def measure_again(pk: int, size: int) -> None:
    """Reserve space for files that have changed before they are copied. Raises Refused where there is not enough."""
    with suppress(Missing), locked(Model, pk=pk) as model:
        if model.state == State.CREATING and not model.copied and model.size != size:
            request = {
                "id": request_id(pk),
                "applier": APPLIER,
                "tenant": model.tenant_id,
                "owner": model.user.username,
            }
            tcc.resize(**request, rom=size)
            model.size = size
            model.save(update_fields=["size"])


def note_copy(pk: int, checksums: dict, requirements: str = "") -> None:
    """Record the copied files, so that the check may start, and the packages that they name, unless some were given or
    come from a job; fail if their size is not the reserved one.
    """
    with locked(Model, pk=pk) as model:
        if model.state != State.CREATING or model.copied:
            return
        if sum(file["size"] for file in checksums.values()) != model.size:
            _fail(model, copying.CHANGED, by="copy")
            return
        model.copied, model.checksums, model.run_name = True, checksums, f"model-{model.pk}"
        if not model.packages and not model.requirements and not model.environment:
            model.requirements = requirements
        model.save(update_fields=["copied", "checksums", "run_name", "requirements"])
        after_commit.enqueue("models.check", model.pk)


def note_order(pk: int, again: bool = False) -> Model | None:
    """Record when the check was first ordered, or that its time begins again; return the model, None unless it is being
    created. Raises Missing.
    """
    with locked(Model, pk=pk) as model:
        if model.state != State.CREATING:
            return None
        model.run_ordered = timezone.now() if again else model.run_ordered or timezone.now()
        model.save(update_fields=["run_ordered"])
        return model


def note_packages(pk: int, digest: str) -> None:
    """Record which environment has a model's packages."""
    with suppress(Missing), locked(Model, pk=pk) as model:
        model.packages = digest
        model.save(update_fields=["packages"])


def note_wait(model: Model, waits_for: str) -> None:
    """Record what the check of a model waits for before it starts; an empty text when it has."""
    reason = Message("waiting to start: %(reason)s", reason=waits_for) if waits_for else ""
    if model.reason != reason:
        with suppress(Missing), locked(Model, pk=model.pk) as row:
            if row.state == State.CREATING and row.run_name == model.run_name:
                row.reason = reason
                row.save(update_fields=["reason"])
                after_commit.changed(row.user.username, "model", row.name)


def complete(pk: int, result: dict, by: str, requirements: str = "") -> None:
    """Move a model from creating to ready. `result` is what the check wrote (format, inputs, outputs), `requirements`
    are the packages with which it was checked.
    """
    with locked(Model, pk=pk) as model:
        if model.state != State.CREATING:
            return
        model.complete(by=by)
        model.reason, model.format = "", str(result.get("format", ""))[:20]
        model.requirements = requirements
        model.signature = {key: result[key] for key in ("inputs", "outputs") if isinstance(result.get(key), list)}
        if about := _about(result.get("about")):
            model.signature["about"] = about
        model.save()
        tcc.confirm(id=request_id(model.pk), applier=APPLIER)
        announce_versions(model)


def _about(given) -> dict:
    """Return what the check says of a language model, as far as it can be: it may be the word of the model's author."""
    given = given if isinstance(given, dict) else {}
    texts = {key: given[key] for key in ABOUT_TEXTS if type(given.get(key)) is str and 0 < len(given[key]) <= 60}
    counts = {key: given[key] for key in ABOUT_COUNTS if type(given.get(key)) is int and 0 < given[key] < 1 << 53}
    template = {"chat_template": True} if given.get("chat_template") is True else {}
    return {key: sanitize.text(text) for key, text in texts.items()} | counts | template


def fail(pk: int, reason: str, by: str, outcome: str = "") -> None:
    """Move a model from creating to error. One in another state, or deleted, is left alone."""
    with suppress(Missing), locked(Model, pk=pk) as model:
        if model.state == State.CREATING:
            _fail(model, reason, by, outcome)


def fail_all_of(user, by: str) -> None:
    """Fail the models that a deregistered user was creating, in that transaction."""
    rows = Model.objects.filter(user=user, state=State.CREATING).order_by("pk")
    for model in list(rows.select_for_update(no_key=True)):
        _fail(model, accounts.DEACTIVATED, by, Outcome.CANCELLED)


def delete_model(*, user, name: str, by: str, trashed: datetime | None = None) -> Model:
    """Move a model from ready or error to deleting. Raises WrongState otherwise, or while an application serves it.

    `trashed`: only if it has been in the trash since then.
    """
    with locked(Model, user=user, name=name) as model:
        trash.require_since(model, trashed)
        require_no_version(model)
        require_not_scoring(model)
        _erase(model, by)
    return model


SERVING = F("trashed").asc(nulls_first=True), "pk"  # the application that is named, of those that serve a model


def checked(prefix: str = "") -> list[str | Prefetch]:
    """Return what to prefetch for the checks of several models, so that they take no query for each; `prefix` leads to
    the models.
    """
    first = Model._meta.get_field("served_by").related_model.objects.order_by(*SERVING)[:1]
    return [
        Prefetch(prefix + "served_by", first, to_attr="serving"),
        prefix + "rollouts__app",
        prefix + "versions__registered",
    ]


def require_not_scoring(model: Model) -> None:
    """Raise WrongState while a job scores a dataset with the locked model."""
    scoring = model.scorings.filter(job__state__in=["creating", "running"]).select_related("job").order_by("pk").first()
    if scoring is not None:
        raise WrongState("the job %(name)s scores a dataset with this model", name=scoring.job.name)


def require_no_version(model: Model) -> None:
    """Raise WrongState for the model of a version of a registered model."""
    version = min(model.versions.all(), key=attrgetter("pk"), default=None)
    if version is not None:
        raise WrongState(
            "it is version %(number)s of the registered model %(name)s; delete the version first",
            number=version.number, name=version.registered.name,
        )  # fmt: skip


def delete_with_version(pk: int, by: str) -> None:
    """Delete the model of a version that is deleted in this transaction; a check in progress is cancelled.

    Raises WrongState while an application serves it.
    """
    model = lock_row(Model, pk=pk)
    if model is None or model.state == State.DELETING:
        return
    if model.state == State.CREATING:
        _fail(model, CANCELLED, by, Outcome.CANCELLED)
    _erase(model, by)


def require_unserved(model: Model, kept: bool = False) -> None:
    """Raise WrongState while an application serves the locked model; with `kept` those in the trash do not count."""
    apps = model.serving if hasattr(model, "serving") else model.served_by.order_by(*SERVING)[:1]
    serving = next(iter(apps), None)
    if serving is not None and serving.trashed is None:
        raise WrongState("the application %(name)s uses this model; delete it first", name=serving.name)
    if serving is not None and not kept:
        raise WrongState(
            "the application %(name)s in the trash uses this model; delete it from there first", name=serving.name
        )
    rollout = min(model.rollouts.all(), key=attrgetter("pk"), default=None)
    if rollout is not None and rollout.shadow_id is not None:
        raise WrongState("the model is a shadow of the application %(name)s; end it first", name=rollout.app.name)
    if rollout is not None:
        raise WrongState("the application %(name)s is moving to this model", name=rollout.app.name)


def _erase(model: Model, by: str) -> None:
    require_unserved(model)
    model.erase(by=by)
    model.save()
    after_commit.enqueue("models.erase", model.pk, queue="files")


def set_notes(*, user, name: str, notes: str) -> Model:
    """Save the owner's notes, in any state."""
    with locked(Model, user=user, name=name) as model:
        model.notes = notes
        model.save(update_fields=["notes"])
        after_commit.changed(user.username, "model", name)
    return model


def forget(pk: int) -> None:
    """Remove the row of a model whose files are gone, and release its disk space."""
    with suppress(Missing), locked(Model, pk=pk) as model:
        if model.state == State.DELETING:
            tcc.release(id=request_id(pk), applier=APPLIER)
            model.delete()
            after_commit.changed(model.user.username, "model", model.name)


def announce_versions(model: Model) -> None:
    """Notify the open pages of the registered models whose versions have this model, and who follows their aliases."""
    for version in model.versions.select_related("registered__user"):
        registered = version.registered
        after_commit.changed(registered.user.username, "registeredmodel", registered.name)
        after_commit.enqueue("apps.follow", registered.pk)


def _fail(model: Model, reason: str, by: str, outcome: str = "") -> None:
    model.fail(by=by, reason=reason, outcome=outcome)
    model.save()
    announce_versions(model)
    after_commit.enqueue("models.clean", model.pk, queue="files")
