"""What the user has submitted, and the digest of its packages: the columns that do not change while a job runs."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

import runners
from kernel import masking
from resources.models import Network
from runners import gpu_types

LONGEST_LIMIT_S = 365 * 86400
MAX_PRIORITY = 100
MAX_IMAGE_NAME = 63
MAX_GPU_TYPE = gpu_types.MAX_LENGTH
NOTEBOOK = ".ipynb"


class Runtime(models.TextChoices):
    PYTHON = "python", "Python"
    TORCH = "torch", "PyTorch"
    TF = "tf", "TensorFlow"


class Submission(models.Model):
    """What a job asks for: cpu in cores, gpu in devices, ram in MiB, per worker."""

    runtime = models.CharField(_("runtime"), max_length=10, choices=Runtime.choices, default=Runtime.PYTHON)
    # The name of an image that the cluster's administrator offers, in place of the runtime's; empty: the runtime's.
    image = models.CharField(_("image"), max_length=MAX_IMAGE_NAME, blank=True, default="", db_default="")
    entry = models.CharField(_("script"), max_length=200)
    args = models.JSONField(_("arguments"), default=list, blank=True)
    env = models.JSONField(_("environment"), default=dict, blank=True)
    gpu = models.PositiveSmallIntegerField(_("GPU"), default=0)
    # The type of its GPUs, such as a100 (runners.gpu_types); empty: any.
    gpu_type = models.CharField(_("GPU type"), max_length=MAX_GPU_TYPE, blank=True, default="", db_default="")
    # The folder of a bucket below which its output is sent once it has finished (datasets.exports); empty: nowhere.
    output_uri = models.CharField(_("output to"), max_length=500, blank=True, default="", db_default="")
    cpu = models.FloatField(_("CPU"), default=1)
    ram = models.PositiveIntegerField(_("Memory (MiB)"), default=512)
    workers = models.PositiveSmallIntegerField(_("workers"), default=1)
    datasets = models.JSONField(_("datasets"), default=list, blank=True)
    # Outputs of other jobs that the run reads: {"DATA": "prepare/sub"}, a job of the user's and a path in its output.
    job_inputs = models.JSONField(_("inputs"), default=dict, blank=True, db_default={})
    retries = models.PositiveSmallIntegerField(_("retries"), default=0)
    # Seconds from the first start until it is stopped, pauses before retries included; null for no limit.
    timeout = models.PositiveIntegerField(_("time limit (s)"), null=True, blank=True)
    priority = models.SmallIntegerField(_("priority"), default=0, db_default=0)  # among its user's own queued jobs
    network = models.CharField(
        _("network"), max_length=10, choices=Network.choices, blank=True, default="", db_default="")  # fmt: skip
    snapshot = models.ForeignKey(  # none in rows of earlier releases: they run what is in .home
        "jobs.Snapshot", on_delete=models.PROTECT, related_name="jobs", null=True, blank=True, verbose_name=_("code")
    )
    requirements = models.TextField(_("packages"), blank=True, default="", db_default="")
    packages = models.CharField(max_length=64, blank=True, default="", db_default="")  # their environment's digest

    environment = models.CharField(  # torch-cpu@3: a named environment, in place of `requirements`
        _("named environment"), max_length=80, blank=True, default="", db_default="")  # fmt: skip
    environment_version = models.ForeignKey(
        "jobs.EnvironmentVersion", on_delete=models.SET_NULL, related_name="+", null=True, blank=True)  # fmt: skip

    class Meta:
        abstract = True

    @property
    def needs_packages(self) -> bool:
        """Return whether its runs have an environment of packages."""
        return bool(self.requirements or self.environment or self.is_notebook)

    @property
    def is_notebook(self) -> bool:
        """Return whether it executes a notebook."""
        return self.entry.endswith(NOTEBOOK)

    @property
    def packages_owner(self) -> int:
        """Return the key of the user in whose folder its environment is: a named one is used as it is, except by a
        notebook, which needs a kernel beside it.
        """
        is_shared = self.environment_version_id and not self.is_notebook
        return self.environment_version.user_id if is_shared else self.user_id

    @property
    def network_policy(self) -> str:
        """Return what its runs may reach: what it asks for, within what its tenant allows now."""
        return runners.narrowest(self.tenant.network_policy, self.network)

    @property
    def needs(self) -> dict:
        """Return what all workers together use of the tenant: gpu, cpu, ram."""
        return {"gpu": self.gpu * self.workers, "cpu": self.cpu * self.workers, "ram": self.ram * self.workers}

    @property
    def shown_env(self) -> dict[str, str]:
        """Return the environment variables given to the job. Readers get only the names: values may be secrets."""
        return self.env if self.reading is None else dict.fromkeys(self.env, masking.HIDDEN)

    @property
    def shown_requirements(self) -> str:
        """Return the packages of the job. Readers do not get passwords in addresses."""
        return self.requirements if self.reading is None else masking.without_credentials(self.requirements)

    @property
    def page_env(self) -> dict[str, str]:
        """Return the same for pages, which hide values of names that look secret from the owner, too: others may see
        the screen.
        """
        return masking.masked(self.shown_env)
