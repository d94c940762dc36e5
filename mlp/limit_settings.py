"""The settings that limit what one address, one user or one job may have at the same time. Read once by settings.py."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from kernel.environment import Section

LIMITS = Section("Limits")
PRICE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)/(\d{1,9}(?:\.\d{1,9})?)", re.ASCII)
GPU_TYPE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9 ._-]{0,61}[A-Za-z0-9])?")  # as in runners.gpu_types


def read(*, proxied: bool) -> tuple[int, int, int, int, int]:
    """Return the limits of connections, websockets, followed logs, values of a job and days in the trash.

    `proxied`: all users have one address.
    """
    connections = LIMITS.integer(
        "MLP_CONNECTIONS_PER_ADDRESS",
        0 if proxied else 1000,
        0,
        65535,
        shown="`1000`; `0` where `MLP_URL` is `https://…` without `MLP_TRUSTED_PROXIES`",
        help="requests and websockets that one IP address may have open at the same time at the gateways; `0`: any "
        "number, for a platform behind a proxy, whose address all of them have",
    )
    websockets = LIMITS.integer(
        "MLP_WEBSOCKETS_PER_USER",
        1000,
        1,
        help="websockets that one user may have open at the same time; a page has one",
    )
    followed_logs = LIMITS.integer(
        "MLP_FOLLOWED_LOGS_PER_USER", 100, 1, help="logs that one user may follow at the same time"
    )
    values = LIMITS.integer(
        "MLP_JOB_VALUES",
        5_000_000,
        1,
        help="metrics and values that are kept of one job; later ones are not stored, and the job's page says so",
    )
    trash_days = LIMITS.integer(
        "MLP_TRASH_DAYS",
        30,
        0,
        3650,
        unit="days",
        help="how long what users delete stays in the trash, where it can be restored; `0`: it is deleted within "
        "seconds",
    )
    return connections, websockets, followed_logs, values, trash_days


def of_bucket_cache() -> int:
    """Return the MiB that the files of external datasets and models may take on this machine."""
    return LIMITS.integer(
        "MLP_BUCKET_CACHE_MIB",
        100 << 10,
        unit="MiB",
        help="files of buckets that are kept below the storage root for the next run with the same dataset or model; "
        "those that were used least recently are removed first, and never those that a run uses "
        "([data.md](data.md#datasets-that-stay-in-a-bucket))",
    )


def of_bucket_folders(section: Section) -> dict[str, str]:
    """Return the folders where buckets are mounted on this machine, by the name of the bucket."""
    setting = "MLP_BUCKET_MOUNTS"
    folders: dict[str, str] = {}
    for part in section.items(
        setting,
        help="`bucket=folder,…`: where buckets are mounted on this machine, each whole; jobs read them there, and "
        "nothing is fetched ([data.md](data.md#buckets-that-are-mounted))",
    ):
        bucket, _, folder = part.partition("=")
        if not bucket or bucket in folders or not Path(folder).is_absolute():
            raise ImproperlyConfigured(f"{setting} must be like photos=/mnt/photos, each bucket once, not {part!r}")
        folders[bucket] = folder
    return folders


def of_disk() -> int:
    """Return the MiB of the disk that are kept free."""
    return LIMITS.integer(
        "MLP_DISK_MINIMUM_MIB",
        256,
        1,
        unit="MiB",
        help="the free disk space below which nothing more is stored: uploads, reports and new objects are refused, "
        "while reading, deleting and logging in go on; keep it below `MLP_DISK_RESERVE_MIB`, so that runs end first",
    )


def of_database(root: Path) -> int:
    """Return the MiB that the rows of one user may take in the database."""
    disk = shutil.disk_usage(root).total >> 20
    return LIMITS.integer(
        "MLP_DATABASE_LIMIT_MIB",
        max(64, disk // 4),
        1,
        unit="MiB",
        shown="a quarter of the disk with `MLP_ROOT`",
        help="what the runs, parameters, tags, metrics, notes, models and other entries of one user may take in the "
        "database; more is refused until the user deletes some",
    )


def of_outputs(root: Path) -> int:
    """Return the MiB that the folders of one user's jobs and workspaces may take on the disk."""
    disk = shutil.disk_usage(root).total >> 20
    return LIMITS.integer(
        "MLP_OUTPUTS_LIMIT_MIB",
        max(1, disk * 4 // 5),
        1,
        unit="MiB",
        shown="four fifths of the disk with `MLP_ROOT`",
        help="what the folders of one user's jobs and workspaces may take on the disk: outputs, logs, artifacts, "
        "homes, also in the trash. Beyond it new jobs and workspaces are refused, queued jobs wait, and those that "
        "write on are ended",
    )


def of_downloads() -> int:
    """Return how many long downloads a user may have that threads of the platform send."""
    return LIMITS.integer(
        "MLP_DOWNLOADS_PER_USER",
        4,
        1,
        help="archives, exports and other long responses made for the download that one user may receive at the same "
        "time; single files of datasets, jobs and models do not count",
    )


def of_code() -> tuple[int, int, int]:
    """Return the limits on the saved files and bytes of a script's folder, and on all saved code of a user."""
    files = LIMITS.integer("MLP_CODE_FILES", 1000, 1, 10_000, help="how many files of a script's folder are kept")
    size = LIMITS.integer("MLP_CODE_BYTES", 20 << 20, 1, unit="bytes", help="how much of a script's folder is kept")
    return files, size, LIMITS.integer("MLP_CODE_LIMIT", 2 << 30, unit="bytes", help="code kept for a user in all")


def of_traces() -> tuple[int, tuple[tuple[str, tuple[float, float]], ...]]:
    """Return the days that traces are kept, and what a million input and output tokens of models cost."""
    days = LIMITS.integer(
        "MLP_TRACE_DAYS",
        0,
        0,
        3650,
        unit="days",
        help="how long traces are kept, by the time at which they were received; `0`: as long as their project",
    )
    setting, prices = "MLP_TRACE_PRICES", {}
    listed = LIMITS.items(
        setting,
        help="prices of language models in US dollars for a million tokens, as `model=input/output,…`, such as "
        "`gpt-4o=2.5/10`; they hold for all models whose name begins so, and for spans that do not say their cost. "
        "The cost of another model is unknown",
    )
    for part in listed:
        name, _equals, price = part.rpartition("=")
        match = PRICE.fullmatch(price.strip())
        if not name.strip() or match is None:
            raise ImproperlyConfigured(f"{setting} must be like gpt-4o=2.5/10, not {part!r}")
        prices[name.strip().lower()] = (float(match[1]), float(match[2]))
    return days, tuple(prices.items())


def of_automation() -> int:
    """Return how many schedules a user may have."""
    return LIMITS.integer("MLP_SCHEDULES_PER_USER", 100, 0, 100_000, help="schedules that one user may have")


def of_submissions() -> int:
    """Return how many jobs a user may submit in a minute; 0: any number."""
    return LIMITS.integer(
        "MLP_SUBMISSIONS_PER_MINUTE",
        600,
        0,
        100_000,
        help="jobs that one user may submit in a minute by REST and on pages; further ones are refused with the time "
        "to wait, so that others are not delayed. Sweeps, pipelines and schedules do not count. `0`: any number",
    )


def of_requests(runs: Section) -> tuple[int, int, int]:
    """Return the most CPUs, GPUs and MiB of memory that one worker of a job, or one application, may request."""
    cpu = runs.integer(
        "MLP_MAX_CPU", 10, 1, 100_000, help="CPUs that a worker of a job, or an application, may request"
    )
    gpu = runs.integer("MLP_MAX_GPU", 16, 0, 10_000, help="GPUs that it may request")
    ram = runs.integer("MLP_MAX_RAM_MIB", 10_000, 100, 2**31 - 1, unit="MiB", help="memory that it may request")
    return cpu, gpu, ram


def of_gpu_types(runs: Section) -> dict[str, tuple[str, ...]]:
    """Return the products that the names of GPU types mean, where an administrator has named them."""
    setting = "MLP_GPU_TYPES"
    listed = runs.items(
        setting,
        help="names of GPU types for jobs, as `name=product|product,…` with the products as `nvidia-smi -L` or the "
        "nodes' labels have them; without it a name is a part of a product: `a100` means `NVIDIA-A100-SXM4-80GB`",
    )
    named = {}
    for part in listed:
        name, _equals, products = part.partition("=")
        values = tuple(each.strip() for each in products.split("|") if each.strip())
        if not GPU_TYPE.fullmatch(name.strip()) or not values:
            raise ImproperlyConfigured(f"{setting} must be like a100=NVIDIA-A100-SXM4-80GB|…, not {part!r}")
        if name.strip().casefold() in named:
            raise ImproperlyConfigured(f"{setting} has a name twice: {name.strip()}")
        named[name.strip().casefold()] = values
    return named


def of_checks(runs: Section) -> tuple[int, int]:
    """Return the seconds that the check of a model may take, and how many processes and threads it may have."""
    seconds = runs.integer(
        "MLP_MODEL_CHECK_S", 120, 1, unit="s", help="how long a model may take to load when it is checked"
    )
    return seconds, runs.integer(
        "MLP_MODEL_CHECK_TASKS", 256, 16, 1024,
        help="how many processes and threads a model may start when it is checked",
    )  # fmt: skip


def of_language_models(runs: Section) -> tuple[int, int]:
    """Return the seconds that an application of a language model may take to answer, and the percentage of a GPU's
    memory that vLLM takes.
    """
    seconds = runs.integer(
        "MLP_LANGUAGE_START_S", 900, 1, unit="s",
        help="how long an application of a language model may take to answer after its start",
    )  # fmt: skip
    return seconds, runs.integer(
        "MLP_VLLM_GPU_PERCENT", 90, 10, 99, unit="%", help="the share of each GPU's memory that vLLM takes"
    )


def of_preemption(runs: Section) -> tuple[int, int, int, int]:
    """Return how long a job waits before others step back for it, their grace period, for how long and how often."""
    waits = runs.integer(
        "MLP_PREEMPT_WAIT_S", 30, 0, unit="s", help="how long a job waits before preemptible ones step back for it"
    )
    grace = runs.integer(
        "MLP_PREEMPT_GRACE_S", 60, 0, 3600, unit="s", help="the grace period of a preempted job to save a checkpoint"
    )
    exempt = runs.integer(
        "MLP_PREEMPT_EXEMPT_S", 300, 0, unit="s", help="how long a job that was preempted runs before it can be again"
    )
    most = runs.integer("MLP_PREEMPT_MAX", 10, 0, 10_000, help="how often one job is preempted; after that it is not")
    return waits, grace, exempt, most
