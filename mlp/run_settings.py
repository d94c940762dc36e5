"""Settings of datasets, jobs, models and applications: how they run, and what they may take."""

from __future__ import annotations

from kernel.environment import ROOT, Section, default_run_python
from mlp import limit_settings

RUNS = Section("Datasets, jobs, models, applications")
MLP_RUNNER = RUNS.text(
    "MLP_RUNNER", "local",
    help="`local`: runs are processes of this machine; `kubernetes`: a cluster's Jobs ([kubernetes.md](kubernetes.md))",
)  # fmt: skip
RUN_PYTHON = RUNS.program(
    "MLP_RUN_PYTHON", default_run_python(ROOT), shown="`.runs-venv/bin/python` in a checkout, else the platform's own",
    help="the Python interpreter of runs on one machine, 3.11 or newer, with the packages of `requirements-runs.txt` "
    "([jobs.md](jobs.md#the-python-of-runs))",
)  # fmt: skip
MLP_CONFINEMENT = RUNS.text(
    "MLP_CONFINEMENT", "auto",
    help="how runs are isolated on one machine: `bwrap`, `landlock`, `none`, or `auto` for the best that works "
    "([jobs.md](jobs.md))",
)  # fmt: skip
LANDLOCK_SHM = RUNS.flag(
    "MLP_LANDLOCK_SHM", True,
    help="whether runs under Landlock may use `/dev/shm`, which they share with each other and the machine. Without it "
    "programs that need POSIX shared memory or semaphores fail, such as PyTorch's `DataLoader` with workers",
)  # fmt: skip
_run_network = RUNS.choice(
    "MLP_RUN_NETWORK", "open", ["open", "platform", "none", "shared"],
    help="what jobs and applications may reach: `open` the platform and the internet, `platform` the platform only, "
    "`none` nothing. It is the default and the maximum of every tenant ([jobs.md](jobs.md#network)). With `shared` "
    "runs use the network of this machine, where policies are enforced for TCP at most",
)  # fmt: skip
RUN_NETWORK_SHARED = _run_network == "shared"
RUN_NETWORK = "open" if RUN_NETWORK_SHARED else _run_network
RUN_INTERNET = RUNS.choice(
    "MLP_RUN_INTERNET", "auto", ["auto", "slirp4netns", "pasta", "proxy"],
    help="how runs reach the internet under `open`, where they have networks of their own ([jobs.md](jobs.md#network))",
)  # fmt: skip
DATASET_SILENCE_S = RUNS.integer(
    "MLP_DATASET_SILENCE_S", 600, 1, unit="s", help="how long an upload may send nothing before it fails"
)
DATA_HOME_LIMIT = RUNS.integer(
    "MLP_HOME_LIMIT", 1 << 30, unit="bytes", help="the size of scripts and uploaded model files a user may keep"
)
JOB_ATTACH = RUNS.flag(
    "MLP_JOB_ATTACH", True,
    help="whether users may start programs in their own running jobs, such as a shell ([jobs.md](jobs.md#attach))",
)  # fmt: skip
JOB_CANCEL_GRACE_S = RUNS.integer(
    "MLP_JOB_CANCEL_GRACE_S", 10, 0, 600, unit="s", help="the grace period from SIGTERM to SIGKILL"
)
PREEMPT_WAIT_S, PREEMPT_GRACE_S, PREEMPT_EXEMPT_S, PREEMPT_MAX = limit_settings.of_preemption(RUNS)
MAX_CPU, MAX_GPU, MAX_RAM_MIB = limit_settings.of_requests(RUNS)
GPU_TYPES = limit_settings.of_gpu_types(RUNS)
BUCKET_FOLDERS = limit_settings.of_bucket_folders(RUNS)
JOB_NATS_MESSAGES_S = RUNS.integer(
    "MLP_JOB_NATS_MESSAGES_S", 2000, 1, unit="per second", help="messages that a job may publish on the message bus"
)
JOB_NATS_BYTES_S = RUNS.integer(
    "MLP_JOB_NATS_BYTES_S", 4 << 20, 1024, unit="bytes per second", help="what a job may send to the message bus"
)
JOB_LOG_LIMIT = RUNS.integer("MLP_JOB_LOG_LIMIT", 256 << 20, unit="bytes", help="how much of a job's log is kept")
JOB_DISK_MIB = RUNS.integer(
    "MLP_JOB_DISK_MIB", 20 << 10, 1, unit="MiB", help="how much one attempt of a job may add to its workspace"
)
DISK_RESERVE_MIB = RUNS.integer(
    "MLP_DISK_RESERVE_MIB", 1024, unit="MiB",
    help="the free disk space that is reserved: with less, no run starts, and the runs that filled the disk are ended",
)  # fmt: skip
MODEL_CHECK_S, MODEL_CHECK_TASKS = limit_settings.of_checks(RUNS)
APP_START_S = RUNS.integer(
    "MLP_APP_START_S", 120, 1, unit="s", help="how long an application may take to answer after its start"
)
LANGUAGE_START_S, VLLM_GPU_PERCENT = limit_settings.of_language_models(RUNS)
APP_MAX_FAILURES = RUNS.integer(
    "MLP_APP_MAX_FAILURES", 5, 1, 100, help="failures in a row after which an application goes to `error`"
)
APP_IDLE_S = RUNS.integer(
    "MLP_APP_IDLE_S", 300, 1, unit="s", help="after how long without a request an application that may sleep does"
)
APP_SCALE_IN_S = RUNS.integer(
    "MLP_APP_SCALE_IN_S", 60, 0, unit="s",
    help="how long fewer replicas of an application must have been enough before one is stopped",
)  # fmt: skip
APP_QUEUE = RUNS.integer(
    "MLP_APP_QUEUE", 100, 0, 10_000,
    help="how many requests wait for a replica of an application; the gateway answers 429 to more",
)  # fmt: skip
APP_ANSWER_S = RUNS.integer(
    "MLP_APP_ANSWER_S", 300, 1, unit="s", help="how long the gateway waits for an application, and for each next part"
)
TRY_TIMEOUT_S = RUNS.integer(
    "MLP_TRY_TIMEOUT_S", 24 * 3600, 1, unit="s", help="when a resource request that was never confirmed is cancelled"
)
