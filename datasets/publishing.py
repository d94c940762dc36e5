"""Publishes a dataset as the next version of another one (datasets.versions)."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from kernel import storage
from kernel.errors import Refused
from kernel.locking import Missing, WrongState
from kernel.messages import Message, word

from . import lifecycle, uses, versions
from .claims import hold
from .models import Dataset, State, Version


def publish(*, user, name: str, source: str, notes: str = "", by: str) -> Version:
    """Make the files of the user's ready dataset `source` the next version of the dataset `name`, and remove `source`.

    Raises Missing, WrongState, also while something uses `source`, and Refused, which names the field.
    """
    if source == name:
        raise Refused("must be another dataset", field="source")
    with transaction.atomic():
        rows = Dataset.kept.filter(user=user, name__in=[name, source]).order_by("pk")
        datasets = {row.name: row for row in rows.select_for_update(of=("self",), no_key=True)}
        if name not in datasets:
            raise Missing("dataset")
        if source not in datasets:
            raise Refused("you have no dataset named %(name)s", field="source", name=source)
        version = _record(datasets[name], datasets[source], notes, by)
    versions.finish(version.dataset_id)
    return Version.objects.select_related("dataset__user").get(pk=version.pk)


def _record(row: Dataset, source: Dataset, notes: str, by: str) -> Version:
    for each in (row, source):
        if each.state != State.READY:
            raise WrongState(
                "the dataset %(name)s is %(state)s; both must be ready", name=each.name, state=word(each.state)
            )
        if each.external:
            raise WrongState("the files of the dataset %(name)s are in a bucket; refresh it instead", name=each.name)
    if row.incoming_id is not None:
        raise WrongState("another version of the dataset %(name)s is being published", name=row.name)
    if source.tenant_id != row.tenant_id:
        raise Refused("must belong to the tenant %(tenant)s", field="source", tenant=row.tenant.name)
    uses.require_unused(source)
    if source.versions.filter(number__lt=source.version).exists():
        raise Refused("has earlier versions of its own; delete them first", field="source")
    versions.adopt(row)
    versions.adopt(source)
    first = source.versions.get(number=source.version)
    version = Version.objects.create(
        dataset=row, number=row.version + 1, size=source.stored, sha256=first.sha256, files=first.files, notes=notes,
        by=by, asked=timezone.now(),
    )  # fmt: skip
    source.versions.all().delete()
    hold(source)
    hold(row)
    for each in (row, source):  # one without files may have no folder yet
        storage.dataset_dir(each.user.username, each.name).mkdir(parents=True, exist_ok=True)
    row.incoming = source
    row.save(update_fields=["incoming"])
    reason = Message("published as version %(number)s of %(name)s", number=version.number, name=row.name)
    lifecycle.give_away(source, reason, by)
    return version
