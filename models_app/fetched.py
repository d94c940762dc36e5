"""The files of external models: listed when the model is created, and fetched to the cache of buckets before a run
reads them, all of them as they were listed, or none.

Their SHA-256 are recorded when they are fetched first, for the check, and compared each time that they are fetched
again. So an application that starts anew serves the same bytes as those that run, whatever the bucket has by then.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path

from django.db.models import Q, QuerySet

from datasets.buckets import caching
from datasets.buckets import listing as listings
from datasets.buckets import rows as buckets
from datasets.buckets.kinds import Kind
from datasets.buckets.manifests import Listed
from datasets.webdav import tree
from kernel import after_commit, copying, storage
from kernel.errors import Refused
from kernel.locking import Missing, locked
from kernel.messages import Message
from resources import tcc

from . import external, lifecycle, packages
from .models import Model, ModelManifest, State


class Models(Kind[ModelManifest]):
    """The external models, as the cache of buckets knows them."""

    prefix, table, size, related = external.PREFIX, ModelManifest, "model__size", ("model__user",)
    words = external.WORDS

    def user(self, row: ModelManifest):
        return row.model.user

    def src(self, row: ModelManifest) -> str:
        return row.model.src

    def bytes(self, row: ModelManifest) -> int:
        return row.model.size

    def is_in_use(self, row: ModelManifest) -> bool:
        return external.is_in_use(row.model)

    def hold(self, row: ModelManifest) -> None:
        with suppress(Missing), locked(Model, pk=row.pk) as model:
            if model.state != State.DELETING:
                tcc.resize(
                    id=lifecycle.request_id(model.pk), applier=lifecycle.APPLIER, tenant=model.tenant_id,
                    owner=model.user.username, rom=external.rom_of(model),
                )  # fmt: skip

    def like(self, row: ModelManifest) -> QuerySet[ModelManifest]:
        place = f"{buckets.KIND}/{buckets.parse(row.model.src)[0]}"
        same = Q(model__src=place) | Q(model__src__startswith=f"{place}/")
        return ModelManifest.objects.filter(same, model__user=row.model.user_id, top=row.top).order_by("-model")

    def progress(self, row: ModelManifest, percent: int) -> Message:
        return Message("its model %(name)s is being fetched: %(percent)s %%", name=row.model.name, percent=percent)

    def failed(self, row: ModelManifest) -> Refused:
        return Refused(
            "the files of the model %(name)s could not be fetched: %(reason)s", name=row.model.name, reason=row.reason
        )

    def accept(self, row: ModelManifest, folder: Path) -> None:
        sums = checksums(folder)
        known = Model.objects.values_list("checksums", flat=True).filter(pk=row.pk).first()
        if not known:
            return note_files(row.pk, folder, sums)
        if wrong := sorted(path for path in known if sums.get(path) != known[path]):
            for path in wrong:
                (folder / path).unlink(missing_ok=True)
            raise Refused(external.WORDS.changed, path=wrong[0])


MODELS = Models()


def waits_for(model: Model, since: datetime | None) -> Message | None:
    """Return what a run that is to read the files of a model waits for; None when they are here.

    Call it when the model is in use (external.is_in_use). Raises Refused where they could not be fetched since that
    moment.
    """
    if not model.external:
        return None
    try:
        return caching.wait(MODELS, ModelManifest.objects.filter(model=model.pk), since or model.created)
    except Missing:
        raise Refused("the files of the model %(name)s are not there any more", name=model.name) from None


def listed(model: Model) -> Listed:
    """Return the objects of the source of a model that is being created. Raises Refused."""

    def goes_on() -> None:
        if not Model.objects.filter(pk=model.pk, state=State.CREATING).exists():
            raise Refused(lifecycle.CANCELLED)

    found = listings.list_source(model.user, model.src, copying.MAX_FILES, refuse, goes_on)
    if not found.size:
        raise Refused(listings.NO_FILES, field="src", src=model.src)
    return found


def refuse(path: str) -> None:
    """Raise Refused: each object of a model is a file of it."""
    raise Refused("the object %(path)s cannot be a file", field="src", path=storage.shown(path))


def record(pk: int, found: Listed) -> None:
    """Record the objects of an external model, so that its check may start."""
    with suppress(Missing), locked(Model, pk=pk) as model:
        if model.state != State.CREATING or model.copied:
            return
        ModelManifest.objects.create(model=model, top=found.top, listing=found.packed)
        model.copied, model.size, model.run_name = True, found.size, f"model-{pk}"
        model.save(update_fields=["copied", "size", "run_name"])
        after_commit.enqueue("models.check", pk)


def note_files(pk: int, folder: Path, sums: dict) -> None:
    """Record the files of a model that were fetched first, and the packages that they name, unless some were given. A
    model whose packages cannot be read has failed.
    """
    try:
        requirements = packages.of_files(folder, sums)
    except Refused as problem:
        lifecycle.fail(pk, problem.msg, by="copy")
        return
    with suppress(Missing), locked(Model, pk=pk) as model:
        if model.checksums:
            return
        model.checksums = sums
        if not model.packages and not model.requirements and not model.environment:
            model.requirements = requirements
        model.save(update_fields=["checksums", "requirements"])


def checksums(folder: Path) -> dict[str, dict]:
    """Return the size and the SHA-256 of each file, by its path."""
    return {
        path: {"size": info.st_size, "sha256": tree.sha256_of_path(folder / path)}
        for path, info in storage.files(folder)
    }


def erase(model: Model) -> bool:
    """Remove what the cache has of a model that is being deleted; return whether that is done. Its objects stay."""
    return caching.remove(external.key(model.pk))
