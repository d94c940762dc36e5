"""Dataset, and Export (datasets.exports). Written only through their lifecycles.

Dataset:
    creating     --complete--> ready
    creating     --fail-->     error
    ready, error --erase-->    deleting      (files go first, then the row)

Export:
    queued          --start-->    running
    running         --complete--> finished
    queued, running --fail-->     error
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy
from django_fsm import FSMField, transition

from kernel.messages import ReasonField
from kernel.models import Lifecycle, refused
from kernel.outcomes import Ending, Outcome
from kernel.titles import Titled
from kernel.transitions import ConcurrentTransitionMixin
from kernel.trash import Trashable


class State(models.TextChoices):
    CREATING = "creating", _("creating")
    READY = "ready", _("ready")
    ERROR = "error", _("failed")
    DELETING = "deleting", _("deleting")


class Dataset(ConcurrentTransitionMixin, Trashable, Titled, Lifecycle):
    """A folder of files of one user. `size` is declared, `stored` is what the data service has accepted (bytes).

    The files of an `external` one stay in the bucket of `src`: nothing is stored, and `size` is that of its objects.
    """

    stored_by = "r.user_id"  # kernel.stored
    untitled = "dataset"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="datasets", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        "resources.Tenant", on_delete=models.PROTECT, related_name="datasets", verbose_name=_("tenant")
    )
    name = models.CharField(_("name"), max_length=50)
    size = models.BigIntegerField(_("size"))
    src = models.CharField(_("source"), max_length=500, blank=True, default="", db_default="")  # "" for an upload
    stored = models.BigIntegerField(_("stored"), default=0)
    state = FSMField(_("state"), default=State.CREATING, choices=State.choices, protected=True)
    progress = models.PositiveSmallIntegerField(_("progress"), default=0)
    reason = ReasonField(_("reason"), blank=True)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    touched = models.DateTimeField(_("last activity"), default=timezone.now)
    notes = models.TextField(_("notes"), blank=True, default="", db_default="")
    version = models.PositiveIntegerField(_("version"), default=1, db_default=1)
    external = models.BooleanField(_("external"), default=False, db_default=False)  # its files stay in the bucket
    refreshed = models.DateTimeField(_("listed"), null=True)
    refresh_asked = models.DateTimeField(null=True)  # until the bucket has been listed again
    incoming = models.OneToOneField("self", models.PROTECT, null=True, blank=True, related_name="published_to")

    class Meta:
        db_table = "dataset"
        verbose_name = _("dataset")
        verbose_name_plural = _("datasets")
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="dataset_name_once_per_user"),
            models.CheckConstraint(condition=Q(state__in=State.values), name="dataset_state"),
            models.CheckConstraint(condition=Q(size__gte=0, stored__gte=0), name="dataset_sizes"),
            models.CheckConstraint(condition=Q(progress__lte=100), name="dataset_progress"),
        ]
        indexes = [
            models.Index(fields=["state", "touched"], name="dataset_unsteady"),
            models.Index(fields=["trashed"], name="dataset_trash", condition=Q(trashed__isnull=False)),
            models.Index(fields=["id"], name="dataset_refresh", condition=Q(refresh_asked__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @transition(
        field=state,
        source=State.CREATING,
        target=State.READY,
        custom=refused("the dataset is %(state)s; only an upload in progress can be completed"),
    )
    def complete(self, *, by, reason=""):
        """Move from creating to ready. The reason, which says what was left out, stays on the page."""
        self.progress, self.reason = 100, reason

    @transition(
        field=state,
        source=State.CREATING,
        target=State.ERROR,
        custom=refused("the dataset is %(state)s; only an upload in progress can be cancelled"),
    )
    def fail(self, *, by, reason="", outcome=""):
        """Move from creating to error."""
        self.reason = reason

    @transition(
        field=state,
        source=[State.READY, State.ERROR],
        target=State.DELETING,
        custom=refused("the upload is still in progress; cancel it before you delete the dataset"),
    )
    def erase(self, *, by, reason=""):
        """Move from ready or error to deleting."""


class Version(models.Model):
    """What a dataset holds or held: `Dataset.version` is the current one, a higher number is being published.

    `sha256` is that of the list of its files (datasets.versions), "" until it is computed; `asked` says since when. One
    that is `erased` waits for the removal of its files.
    """

    stored_by = "(SELECT user_id FROM dataset WHERE id = r.dataset_id)"  # kernel.stored

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions", verbose_name=_("dataset"))
    number = models.PositiveIntegerField(_("number"))
    sha256 = models.CharField("SHA-256", max_length=64, blank=True, default="")
    files = models.BigIntegerField(_("files"), null=True)
    size = models.BigIntegerField(_("size"))
    notes = models.TextField(_("notes"), blank=True, default="")
    by = models.CharField(_("who"), max_length=80)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    asked = models.DateTimeField(null=True)
    erased = models.BooleanField(default=False)

    class Meta:
        db_table = "dataset_version"
        verbose_name = _("version")
        verbose_name_plural = _("versions")
        constraints = [models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_number")]
        indexes = [
            models.Index(fields=["asked"], name="dataset_version_unsummed", condition=Q(sha256="")),
            models.Index(fields=["id"], name="dataset_version_erased", condition=Q(erased=True)),
        ]

    def __str__(self) -> str:
        return f"{self.dataset_id}@{self.number}"


class Listing(models.Model):
    """The objects of a bucket that something consists of, and how far they are in the cache (datasets.buckets.caching).

    `listing` has a line `{path}\\0{size}\\0{tag}` for each, compressed; their keys begin with `top`. `asked` is kept
    up to date while a run waits for the files, `cached` says since when all of them are there. `failed` is when the
    last fetch has failed, with the `reason`, which else says what the fetch waits for.
    """

    top = models.CharField(max_length=1024, blank=True)
    listing = models.BinaryField()
    asked = models.DateTimeField(null=True)
    fetched = models.BigIntegerField(default=0)
    cached = models.DateTimeField(null=True)
    used = models.DateTimeField(null=True)
    failed = models.DateTimeField(null=True)
    reason = ReasonField(_("reason"), blank=True)

    class Meta:
        abstract = True


class Manifest(Listing):
    """The objects of a version of an external dataset. `compared` says when the bucket, which is mounted for runs
    (datasets.buckets.in_place), had just these.
    """

    stored_by = (
        "(SELECT d.user_id FROM dataset_version v JOIN dataset d ON d.id = v.dataset_id WHERE v.id = r.version_id)"
    )

    version = models.OneToOneField(Version, on_delete=models.CASCADE, primary_key=True, related_name="manifest")
    compared = models.DateTimeField(null=True)

    class Meta:
        db_table = "dataset_manifest"
        verbose_name = _("manifest")
        verbose_name_plural = _("manifests")
        indexes = [models.Index(fields=["used"], name="dataset_manifest_cached", condition=Q(cached__isnull=False))]

    def __str__(self) -> str:
        return f"{self.version_id}"


class Lock(models.Model):
    """A WebDAV lock on a file, a folder or a dataset (datasets/webdav/lock_store.py); it expires."""

    stored_by = "r.user_id"  # kernel.stored

    token = models.CharField(_("token"), max_length=64, primary_key=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    dataset = models.CharField(_("dataset"), max_length=50)
    path = models.TextField(_("path"), blank=True)
    holder = models.CharField(_("holder"), max_length=150)
    exclusive = models.BooleanField(_("exclusive"))
    deep = models.BooleanField(_("including everything in it"))
    owner = models.TextField(_("as reported by the client"), blank=True)
    expires = models.DateTimeField(_("ends"))

    class Meta:
        db_table = "dataset_lock"
        verbose_name = _("lock")
        verbose_name_plural = _("locks")
        indexes = [models.Index(fields=["user", "dataset"], name="dataset_lock_place")]

    def __str__(self) -> str:
        return f"{self.user}/{self.dataset}/{self.path}"


class Bucket(models.Model):
    """A bucket of an S3 server, whose files may become datasets (datasets.buckets), and that exports may
    go to with the `access` write (datasets.exports). `secret` is sealed.
    """

    class Signing(models.TextChoices):
        KEY = "key", _("with an access key")
        PLATFORM = "platform", _("with the credentials in the platform's environment")
        NONE = "none", _("not at all: the bucket is public")

    class Access(models.TextChoices):
        READ = "read", pgettext_lazy("the right to a bucket", "read")
        WRITE = "write", _("read and write")

    name = models.CharField(_("name"), max_length=63)
    endpoint = models.CharField(_("address of the server"), max_length=300, blank=True)  # "" for AWS
    bucket = models.CharField(_("bucket"), max_length=255)
    prefix = models.CharField(_("folder"), max_length=500, blank=True)
    region = models.CharField(_("region"), max_length=63)
    virtual_hosted = models.BooleanField(_("bucket as part of the host name"), default=False)
    signing = models.CharField(_("requests are signed"), max_length=8, choices=Signing.choices)
    access_key = models.CharField(_("access key"), max_length=200, blank=True)
    secret = models.TextField(blank=True)
    access = models.CharField(
        _("right"), max_length=5, choices=Access.choices, default=Access.READ, db_default=Access.READ
    )
    everybody = models.BooleanField(_("all users may read it"), default=False)
    tenants = models.ManyToManyField("resources.Tenant", related_name="+", verbose_name=_("tenants"))
    created = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "bucket"
        verbose_name = _("bucket")
        verbose_name_plural = _("buckets")
        constraints = [models.UniqueConstraint(fields=["name"], name="bucket_name")]

    def __str__(self) -> str:
        return self.name


class ExportState(models.TextChoices):
    QUEUED = "queued", _("queued")
    RUNNING = "running", _("running")
    FINISHED = "finished", _("finished")
    ERROR = "error", _("failed")


class Export(ConcurrentTransitionMixin, Ending):
    """Files of `src` that are sent to `target`, a place in a bucket. `object_id` is the dataset, job or model of `src`.

    `size` bytes in `files` files are all that it has; `sent` of the files were sent, the others were there already.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="exports", verbose_name=_("user")
    )
    src = models.CharField(_("source"), max_length=500)
    target = models.CharField(_("target"), max_length=600)
    object_id = models.BigIntegerField()
    state = FSMField(_("state"), default=ExportState.QUEUED, choices=ExportState.choices, protected=True)
    progress = models.PositiveSmallIntegerField(_("progress"), default=0)
    size = models.BigIntegerField(_("size"), null=True)
    files = models.BigIntegerField(_("files"), null=True)
    sent = models.BigIntegerField(_("files sent"), default=0)
    reason = ReasonField(_("reason"), blank=True)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    touched = models.DateTimeField(_("last activity"), default=timezone.now)
    ended = models.DateTimeField(_("ended"), null=True)

    class Meta:
        db_table = "export"
        verbose_name = _("export")
        verbose_name_plural = _("exports")
        constraints = [
            models.CheckConstraint(condition=Q(state__in=ExportState.values), name="export_state"),
            models.CheckConstraint(condition=Q(progress__lte=100), name="export_progress"),
        ]
        indexes = [
            models.Index(fields=["user", "-id"], name="export_newest"),
            models.Index(fields=["touched"], name="export_live", condition=Q(state__in=["queued", "running"])),
        ]

    def __str__(self) -> str:
        return f"{self.src} > {self.target}"

    @property
    def history_name(self) -> str:
        return str(self.pk)

    @property
    def title(self) -> str:
        """Return what notices call it."""
        return str(self)[:200]

    @transition(
        field=state,
        source=ExportState.QUEUED,
        target=ExportState.RUNNING,
        custom=refused("the export is %(state)s; only a queued one can start"),
    )
    def start(self, *, by, reason=""):
        """Move from queued to running."""
        self.reason = ""

    @transition(
        field=state,
        source=ExportState.RUNNING,
        target=ExportState.FINISHED,
        custom=refused("the export is %(state)s; only a running one can finish"),
    )
    def complete(self, *, by, reason=""):
        """Move from running to finished. The reason says what was left out."""
        self.progress, self.reason, self.ended, self.outcome = 100, reason, timezone.now(), Outcome.FINISHED

    @transition(
        field=state,
        source=[ExportState.QUEUED, ExportState.RUNNING],
        target=ExportState.ERROR,
        custom=refused("the export is %(state)s; only a queued or running one can be cancelled"),
    )
    def fail(self, *, by, reason="", outcome=""):
        """Move from queued or running to error."""
        self.reason, self.ended, self.outcome = reason, timezone.now(), outcome or Outcome.FAILED
