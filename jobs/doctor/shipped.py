"""The shipped rules. An upgrade may change them; administrators' own rules are rows of FailureRule.

The first rule that matches counts. Patterns are in RE2's syntax, their groups fill the explanation; `example` is a text
that the pattern matches, which tests check. A rule with `needs` applies only in that situation (facts.SITUATIONS).
"""

from __future__ import annotations

from typing import NamedTuple

from django.utils.translation import gettext_noop as noop

from jobs.models import Action, Where


class Shipped(NamedTuple):
    """A shipped rule; its key never changes."""

    key: str
    where: str
    pattern: str
    title: str
    explanation: str
    example: str
    action: str = Action.NONE
    needs: str = ""


R, X, L = Where.REASON, Where.EXCEPTION, Where.LOG

RESOURCES = (
    Shipped(
        "gpu_memory",
        X,
        r"CUDA out of memory|OutOfMemoryError: CUDA|CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|"
        r"ResourceExhaustedError|OOM when allocating",
        noop("The GPU is out of memory"),
        noop(
            "The GPU's memory is full. Use a smaller batch, mixed precision or gradient accumulation. More "
            "memory for the job (RAM) does not help."
        ),
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", Action.EDIT,
    ),
    Shipped(
        "memory", R, r"out of memory|needed more than (\d+) MiB of memory",
        noop("Out of memory"),
        noop(
            "The run needed more memory than it had requested (%(ram)s MiB) and was ended. Request more, or "
            "use less: smaller batches, fewer data loader workers, data read in parts."
        ),
        "out of memory (requested 512 MiB), killed by signal 9 (SIGKILL)", Action.MORE_MEMORY,
    ),
    Shipped(
        "shared_memory", X, r"DataLoader worker .{0,80}killed by signal: Bus error|insufficient shared memory",
        noop("The data loader has too little shared memory"),
        noop(
            "The workers of the data loader pass batches through shared memory, which was full. Use fewer workers "
            "(num_workers) or request more memory."
        ),
        "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory.",
        Action.MORE_MEMORY,
    ),
    Shipped(
        "allocation",
        X,
        r"MemoryError|DefaultCPUAllocator: (?:can't|not enough)|std::bad_alloc|Cannot allocate memory|"
        r"DataLoader worker .{0,80}killed by signal: Killed",
        noop("Memory could not be allocated"),
        noop(
            "The script tried to allocate more memory than the run may use (%(ram)s MiB requested). Request more, or "
            "use less at a time."
        ),
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array: MemoryError",
        Action.MORE_MEMORY,
    ),
    Shipped(
        "time_limit", R, r"ran longer than (?P<limit>\d+) s",
        noop("The time limit was reached"),
        noop(
            "The run was stopped after %(limit)s seconds. Save checkpoints and continue from them, or ask an "
            "administrator for a longer limit."
        ),
        "stopped because it ran longer than 3600 s, killed by signal 15 (SIGTERM)", Action.FORM,
    ),
    Shipped(
        "disk_limit", R, r"wrote more than (?P<limit>\d+) MiB",
        noop("The run wrote too much"),
        noop(
            "A run may write at most %(limit)s MiB to its output folder. Keep fewer checkpoints, or delete "
            "temporary files as you go."
        ),
        "wrote more than 1024 MiB, killed by signal 9 (SIGKILL)", Action.EDIT,
    ),
    Shipped(
        "disk_full", L, r"No space left on device|Disk quota exceeded|disk of the machine is nearly full",
        noop("The disk is full"),
        noop(
            "A write failed because the disk or a quota is full. Delete output of old jobs and data you no longer "
            "need, or contact an administrator."
        ),
        "OSError: [Errno 28] No space left on device: 'model.pt'", Action.USAGE,
    ),
    Shipped(
        "disk_nearly_full", R, r"disk of the machine is nearly full",
        noop("The machine's disk is nearly full"),
        noop(
            "The run was ended to protect the machine. Delete output you no longer need, or contact an administrator."
        ),
        "the disk of the machine is nearly full, and this run has written 12 MiB", Action.USAGE,
    ),
    Shipped(
        "processes", R, r"had more than (?P<limit>\d+) processes",
        noop("Too many processes"),
        noop("A run may have at most %(limit)s processes and threads. Use fewer workers or threads."),
        "had more than 512 processes", Action.EDIT,
    ),
    Shipped(
        "threads", X, r"can't start new thread|pthread_create failed|BlockingIOError: \[Errno 11\]",
        noop("No more processes or threads"),
        noop("The run has reached its limit of processes and threads. Use fewer workers or threads."),
        "RuntimeError: can't start new thread", Action.EDIT,
    ),
    Shipped(
        "open_files", X, r"Too many open files",
        noop("Too many open files"),
        noop("The script keeps too many files open. Close them, or use fewer data loader workers."),
        "OSError: [Errno 24] Too many open files: 'a.png'", Action.EDIT,
    ),
)  # fmt: skip

PLATFORM = (
    Shipped(
        "job_time_limit", R, r"the time limit of (?P<seconds>\d+) s is exceeded",
        noop("The time limit is exceeded"),
        noop(
            "The job was stopped after the %(seconds)s seconds that were allowed when it was submitted. Run it again "
            "with a longer time limit; a script that continues from its last checkpoint loses nothing."
        ),
        "the time limit of 3600 s is exceeded", Action.EDIT,
    ),
    Shipped(
        "idle", R, r"idle: less than (?P<percent>\d+) % of its (?P<kind>GPU|CPU) used for (?P<minutes>\d+) min",
        noop("The job was idle"),
        noop(
            "It used less than %(percent)s %% of its %(kind)s for %(minutes)s minutes, which its tenant's policy does "
            "not allow. The chart of its usage shows since when. Let the script fail instead of waiting for input, "
            "data or a lock, and do not request a GPU that it does not use."
        ),
        "idle: less than 5 % of its GPU used for 30 min", Action.USAGE,
    ),
    Shipped(
        "lost",
        R,
        r"run no longer exists|its end was not recorded|lost: |its node is gone|node that was lost|"
        r"lost track of it|evicted|preempted|ended by its node|ended by the cluster",
        noop("The machine was lost"),
        noop(
            "The run disappeared with its machine: a restart, a crash or an eviction, not an error of the script. Run "
            "it again; with retries it restarts automatically."
        ),
        "the run no longer exists: the machine or its runner was restarted", Action.AGAIN,
    ),
    Shipped(
        "guard", R, r"its supervisor failed|killed together with its guard|supervisor received SIGTERM",
        noop("The platform ended the run"),
        noop("The process that watched the run ended, for example when the machine was shut down. Run it again."),
        "killed together with its guard process", Action.AGAIN,
    ),
    Shipped(
        "image", R, r"its image (?:cannot be pulled|name is invalid|is not on the node)|registry of its image",
        noop("The image is missing"),
        noop(
            "The cluster cannot pull the image of this job. An administrator has to check its name and the registry."
        ),
        "could not start: its image cannot be pulled: not found",
    ),
    Shipped(
        "image_python", R, r"its image has no (?P<program>[^\s(]+)",
        noop("The image has no %(program)s"),
        noop(
            "The image of this job does not have the program that the platform starts. An administrator has to add it "
            "to the image, or to offer another image."
        ),
        "could not start: its image has no python3 (registry.example/cuda:1)",
    ),
    Shipped(
        "not_fetched", R, r"the files of the (?:dataset|model) (?P<name>[^\s:]{1,120}) could not be fetched",
        noop("The files of %(name)s could not be fetched"),
        noop(
            "The files of %(name)s stay in a bucket. They could not be fetched before the start, so the script has not "
            "run. If objects have changed or vanished, refresh the dataset; then run the job again."
        ),
        "the files of the dataset photos could not be fetched: the object a.csv has changed", Action.AGAIN,
    ),
    Shipped(
        "not_started", R, r"could not (?:be started|start)|its files could not be prepared|log file ",
        noop("The run could not be started"),
        noop(
            "The platform could not start the script, so none of it has run. Run it again; if the problem persists, "
            "contact an administrator."
        ),
        "could not be started: the runner does not answer", Action.AGAIN,
    ),
)  # fmt: skip

FILES = (
    Shipped(
        "module", X, r"ModuleNotFoundError: No module named '?(?P<module>[A-Za-z0-9_.]+)",
        noop("The module %(module)s is missing"),
        noop(
            "Python cannot find the module %(module)s. The package %(package)s provides it; it is not installed for "
            "this runtime. Add it to the packages of the job. A module of your own must be uploaded beside the script."
        ),
        "ModuleNotFoundError: No module named 'cv2'", Action.FORM,
    ),
    Shipped(
        "shared_library", X, r"ImportError: (?P<library>[^\s:]{1,80}): cannot open shared object file",
        noop("The library %(library)s is missing"),
        noop(
            "A Python package needs the system library %(library)s, which this runtime does not have. "
            "Headless variants of packages often need none (opencv-python-headless)."
        ),
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory", Action.FORM,
    ),
    Shipped(
        "import_name",
        X,
        r"ImportError: cannot import name '(?P<name>[^']{1,100})' from "
        r"(?:partially initialized module )?'(?P<module>[^']{1,100})'",
        noop("%(name)s cannot be imported from %(module)s"),
        noop(
            "The module %(module)s has no %(name)s: another version of the package is installed, a file of "
            "yours has the same name as the package, or two modules import each other."
        ),
        "ImportError: cannot import name 'foo' from 'torch' (/usr/lib/torch.py)", Action.EDIT,
    ),
    Shipped(
        "dataset_file",
        X,
        r"(?:FileNotFoundError|NotADirectoryError|"
        r"No such file).{0,200}?(?P<path>/datasets/(?P<dataset>[a-z.]{1,50})/[^'\"\n]{1,200})",
        noop("The dataset %(dataset)s has no such file"),
        noop("The dataset %(dataset)s has no file %(path)s. Compare the path with the dataset's files."),
        "FileNotFoundError: [Errno 2] No such file or directory: '/datasets/digits/train.csv'",
        Action.DATASET,
        "has_dataset",
    ),
    Shipped(
        "dataset",
        X,
        r"(?:FileNotFoundError|NotADirectoryError|No such file).{0,200}?/datasets/(?P<dataset>[a-z.]{1,50})\b",
        noop("The dataset %(dataset)s is not available"),
        noop(
            "The script reads from the dataset %(dataset)s. A run can read only the datasets selected for its job."
        ),
        "FileNotFoundError: [Errno 2] No such file or directory: '/datasets/digits/train.csv'", Action.DATASET,
    ),
    Shipped(
        "script", L, r"can't open file '?(?P<path>[^'\n]{1,300}?)'?: \[Errno 2\]",
        noop("The script is missing"),
        noop(
            "The script was deleted or renamed after the job was submitted. Upload it again, or choose "
            "another one."
        ),
        "python3: can't open file '/scripts/train.py': [Errno 2] No such file or directory", Action.UPLOAD_SCRIPT,
    ),
    Shipped(
        "file", X, r"FileNotFoundError: .{0,100}'(?P<path>[^'\n]{1,300})'",
        noop("A file is missing: %(path)s"),
        noop(
            "The script opens %(path)s, which does not exist. Scripts begin in their job's empty output "
            "folder: read data from the folder in MLP_DATASETS, and files beside the script by a path from "
            "__file__."
        ),
        "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", Action.UPLOAD_SCRIPT,
    ),
    Shipped(
        "read_only",
        X,
        r"(?:\[Errno 30\] Read-only file system|"
        r"PermissionError: \[Errno 13\] Permission denied)(?:: '(?P<path>[^'\n]{1,300})')?",
        noop("The folder is read-only"),
        noop(
            "A run may write only to its output folder, in which it starts, and to /tmp; datasets and "
            "scripts are read-only. Write to a relative path."
        ),
        "PermissionError: [Errno 13] Permission denied: '/datasets/digits/cache'", Action.EDIT,
    ),
    Shipped(
        "hub",
        X,
        r"is not a local folder and is not a valid model identifier|GatedRepoError|"
        r"couldn't connect to 'https://huggingface|LocalEntryNotFoundError|OfflineModeIsEnabled",
        noop("The pretrained model could not be loaded"),
        noop(
            "The model hub could not be reached, does not have this model, or requires a token. If the network access "
            "is restricted, upload the model as a dataset and load it from its folder."
        ),
        "OSError: my/model is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'",
        Action.NETWORK,
    ),
    Shipped(
        "unpickle", X, r"UnpicklingError|Weights only load failed|PytorchStreamReader failed",
        noop("A saved file cannot be loaded"),
        noop(
            "The file is damaged, incomplete or of another kind than the script expects. torch.load reads "
            "plain weights only unless weights_only=False is given; do that for your own files only."
        ),
        "_pickle.UnpicklingError: Weights only load failed.", Action.EDIT,
    ),
)  # fmt: skip

_UNREACHABLE = (
    r"gaierror|Name or service not known|Temporary failure in name resolution|Network is unreachable|"
    r"NameResolutionError|No route to host|ProxyError|Tunnel connection failed|ConnectTimeout"
)
NETWORK = (
    Shipped(
        "network_policy", X, _UNREACHABLE + r"|ConnectionRefusedError|Max retries exceeded|Connection refused",
        noop("The network access of this job is restricted"),
        noop(
            "The job's network setting is “%(network)s”, so the script could not connect. Bring data as a "
            "dataset, or choose another network if your tenant allows it."
        ),
        "socket.gaierror: [Errno -3] Temporary failure in name resolution", Action.NETWORK, "network_closed",
    ),
    Shipped(
        "certificate", X, r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError",
        noop("The server's certificate is not trusted"),
        noop(
            "The connection is encrypted, but the server's certificate cannot be verified. Check the address; for a "
            "private server, provide its certificate to the script."
        ),
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", Action.EDIT,
    ),
    Shipped(
        "port", X, r"Address already in use|EADDRINUSE",
        noop("The port is in use"),
        noop(
            "The script listens on a port that another process uses. Let the system choose one (port 0), or "
            "take MASTER_PORT from the environment."
        ),
        "OSError: [Errno 98] Address already in use", Action.EDIT,
    ),
    Shipped(
        "refused", X, r"ConnectionRefusedError|Connection refused",
        noop("The connection was refused"),
        noop(
            "No process is listening at that address. Each run has its own network: “localhost” is the run itself, not "
            "the machine."
        ),
        "ConnectionRefusedError: [Errno 111] Connection refused", Action.EDIT,
    ),
    Shipped(
        "unreachable", X, _UNREACHABLE,
        noop("A server cannot be reached"),
        noop(
            "The name could not be resolved or the server did not answer. Check the address; it may be down, "
            "or blocked outside of the platform."
        ),
        "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='x', port=443)", Action.AGAIN,
    ),
    Shipped(
        "workers",
        X,
        r"NCCL error|Watchdog caught collective operation timeout|ncclSystemError|"
        r"Connection closed by peer|DistBackendError|DistNetworkError",
        noop("The connection between workers was lost"),
        noop(
            "One worker ended or hung, so the others could not continue. The first failed worker has the "
            "cause: look further up in the log."
        ),
        "torch.distributed.DistBackendError: NCCL error in: ../x.cpp", Action.AGAIN,
    ),
)  # fmt: skip
