"""Models whose files stay in a bucket: which objects they have, where the files are while the cache has them, and what
uses them. Only the objects that were listed when the model was created are ever served: see fetched.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from django.db.models import Q

from datasets.buckets import kinds, manifests, waiting
from datasets.buckets import listing as listings
from datasets.buckets import rows as buckets
from datasets.buckets.manifests import Listed
from datasets.buckets.store import Words
from datasets.models import Bucket
from kernel import copying, names, storage
from kernel.errors import Refused
from kernel.locking import Missing, WrongState
from kernel.messages import Message

from .models import Model, ModelManifest, State

PREFIX = "m"  # of the names of folders in the cache
COPY = "models"  # the kind of a source: an external model, whose files are copied
WORDS = Words(
    Message("the object %(path)s has changed since the model was created"),
    Message("the object %(path)s is not in the bucket any more"),
)
SERVING = ("creating", "ready")  # states of applications
MOVING = ("waiting", "starting", "canary", "shadow", "restarting", "ending")  # phases of their moves
LIVE = ("creating", "running")  # states of jobs


class Difference(NamedTuple):
    """How a bucket differs from what was listed: paths of objects that have changed, that are missing, and that were
    added since; the model does without these.
    """

    changed: list[str]
    missing: list[str]
    added: list[str]

    @property
    def same(self) -> bool:
        """Return whether the bucket has exactly the objects of the model."""
        return not (self.changed or self.missing or self.added)


def key(pk: int) -> str:
    """Return how the cache calls the files of a model."""
    return f"{PREFIX}{pk}"


def folder(model: Model) -> Path:
    """Return the folder of a model's files; those of an external one are there while the cache has them."""
    return kinds.folder(key(model.pk)) if model.external else storage.model_dir(model.user.username, model.name)


def listed(model: Model) -> Listed:
    """Return the objects of an external model; none until they are listed."""
    manifest = ModelManifest.objects.filter(model=model.pk).first()
    return manifests.read(manifest) if manifest is not None else Listed("", [])


def require_external(model: Model) -> None:
    """Raise Refused unless the files of the model stay in a bucket."""
    if not model.external:
        raise Refused("the files of the model %(name)s are stored here", name=model.name)


def address(model: Model, path: str) -> str:
    """Return an address that is good for a few minutes, at which anybody can get the file, and only that; "" for one
    without bytes.

    Raises Missing where the model has no such file; Refused where its object has changed, the server does not answer,
    or the owner may not read the bucket any more; waiting.Slow.
    """
    manifest = ModelManifest.objects.filter(model=model.pk).first()
    entry = manifests.find_in(manifest, path) if manifest is not None else None
    if entry is None:
        raise Missing("file")
    return manifests.address_of(model.user, model.src, Listed(manifest.top, []), entry, WORDS)


def compare(model: Model) -> Difference:
    """Return how the bucket differs from the model. Raises Refused where it cannot be listed; waiting.Slow."""
    there, limit = listed(model), copying.MAX_FILES
    bucket = buckets.find(model.user, buckets.parse(model.src)[0])
    with waiting.for_server(bucket):
        now = listings.list_source(model.user, model.src, limit, lambda path: None, lambda: None, soon=True)
    before, after = ({each.key(entry).path: entry for entry in each.entries} for each in (there, now))
    return Difference(
        [entry.path for at, entry in before.items() if at in after and _has_changed(entry, after[at])],
        [entry.path for at, entry in before.items() if at not in after],
        [entry.path for at, entry in after.items() if at not in before],
    )


def _has_changed(before, after) -> bool:
    return (before.size, before.tag) != (after.size, after.tag)


# --- what needs the files --------------------------------------------------------------------------------------------
def is_in_use(model: Model) -> bool:
    """Return whether a run uses the files of a model, or waits for them: its check, an application, a job that scores,
    or a copy of the model.
    """
    served = Q(served_by__state__in=SERVING) | Q(served_by__run_name__gt="")
    moving = Q(rollouts__app__state__in=SERVING, rollouts__phase__in=MOVING)
    scoring = Q(scorings__job__state__in=LIVE, scorings__job__reserved=True) | Q(scorings__job__run_name__gt="")
    if Model.objects.filter(Q(state=State.CREATING) | served | moving | scoring, pk=model.pk).exists():
        return True
    copies = Model.objects.filter(user=model.user_id, state=State.CREATING, copied=False)
    return copies.filter(src=f"{COPY}/{model.name}").exists()


def rom_of(model: Model) -> int:
    """Return the bytes that a model should hold of its tenant's disk space; those of an external one count while they
    are in the cache, or on their way there.
    """
    if not model.external:
        return model.size
    here = Q(cached__isnull=False) | Q(asked__isnull=False)
    return model.size if ModelManifest.objects.filter(here, model=model.pk).exists() else 0


def need_bucket(bucket: Bucket) -> None:
    """Raise WrongState while a model's files are in the bucket."""
    place = f"{buckets.KIND}/{bucket.name}"
    rows = Model.objects.filter(Q(src=place) | Q(src__startswith=f"{place}/"), external=True)
    row = rows.filter(state__in=(State.CREATING, State.READY)).select_related("user").order_by("pk").first()
    if row is not None:
        raise WrongState(
            "the files of the model %(name)s of %(user)s are in this bucket; delete the model first",
            name=row.name, user=row.user.username,
        )  # fmt: skip


# --- copies into the platform ----------------------------------------------------------------------------------------
def is_copy(src: str) -> bool:
    """Return whether this source is a model."""
    return src.startswith(f"{COPY}/")


def source(user, src: str) -> Model:
    """Return the external model that a source names. Raises Refused."""
    name = names.name(src.removeprefix(f"{COPY}/"), "src")
    row = Model.kept.filter(user=user, name=name, state=State.READY).select_related("user").first()
    if row is None:
        raise Refused("you have no model named %(name)s that is ready", field="src", name=name)
    if not row.external:
        raise Refused("the files of the model %(name)s are stored here already", field="src", name=name)
    return row
