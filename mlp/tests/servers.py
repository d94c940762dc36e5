"""A pytest plugin: starts the real PostgreSQL, Valkey and NATS once for the whole run and points the settings at them.

Loaded by `-p mlp.tests.servers`, that is, before Django's settings are read. With DATABASE_URL, REDIS_URL and NATS_URL
all given, those servers are used and nothing is started; subjects are the same for everybody, so such a run must be the
only one on that NATS. Else workers of a parallel run share the first process's PostgreSQL and Valkey, each in databases
of its own, and have a NATS each.

Whatever `begin` has started ends with this process, also when it is killed: see guardian.py.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from supervision import binaries

HOST = "127.0.0.1"
GIVEN = ("DATABASE_URL", "REDIS_URL", "NATS_URL")
WAIT_S = 120
LONGEST_PLACE = 80  # bytes of the path of a folder with a socket
OWN_NATS = "MLP_TEST_OWN_NATS"
SLOTS = 8  # processes of tests that may run at the same time: workers of a parallel run, and one run beside it


def pytest_configure(config) -> None:
    os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # the browser's driver keeps a loop in the main thread
    if getattr(config.option, "numprocesses", None) and ours():  # the process that only waits for the workers
        begin([sys.executable, "-m", "mlp.tests.template"], _folder / "template.log")  # while they load the tests


def slot() -> int:
    """Return the index of this process among those that run tests at the same time, from 0 to SLOTS - 1."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return int(worker.removeprefix("gw")) % (SLOTS - 1) if worker else SLOTS - 1


_given: dict[int, int] = {}  # the open lock of each port


def free_port() -> int:
    """Return a port that nobody else uses, also before its server listens and while it is stopped: below those of
    outgoing connections, from this process's range, and never the same twice.
    """
    first = 10000 + 600 * slot()
    while True:
        port = first + secrets.randbelow(600)
        if reserve(port):
            with closing(socket.socket()) as probe, suppress(OSError):
                probe.bind((HOST, port))
                return port


def reserve(port: int) -> bool:
    """Return whether the port, or what it stands for, is this process's from now on."""
    if port in _given or (lock := _lock(port)) is None:
        return False
    _given[port] = lock
    return True


def _lock(port: int) -> int | None:
    """Return a file by which the port is this process's until it ends; None where another one has it. Two processes
    have the same range: the one that starts the workers, and the one beside them.
    """
    folder = Path(tempfile.gettempdir(), f"mlp-test-ports-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def wait_for_port(port: int, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"a test server ended at its start: {log.read_text()[-2000:]}")
        with closing(socket.socket()) as probe:
            probe.settimeout(1)
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"a test server did not open port {port}: {log.read_text()[-2000:]}")


def start(folder: Path, name: str, command: list[str], port: int, ended_by: int = signal.SIGTERM) -> subprocess.Popen:
    """Start a server of the tests and return it once its port is open."""
    log = folder / f"{name}.log"
    process = begin(command, log, ended_by=ended_by)
    wait_for_port(port, process, log)
    return process


def begin(
    command: list[str], log: Path, ended_by: int = signal.SIGTERM, grace_s: int = 5, **options
) -> subprocess.Popen:
    """Start a process that does not outlive this one; `ended_by` is the signal for its graceful shutdown."""
    with log.open("ab") as output:
        streams = {"stdout": output, "stderr": output} | options
        process = subprocess.Popen(command, start_new_session=True, **streams)
    watch(process, ended_by, grace_s)
    return process


def watch(process: subprocess.Popen, ended_by: int = signal.SIGTERM, grace_s: int = 5) -> None:
    """Make sure that the process does not outlive this one."""
    _guardian.stdin.write(b"%d %d %d\n" % (process.pid, ended_by, grace_s))


def start_guardian(folder: Path) -> subprocess.Popen:
    """Start the guardian, which ends our servers and removes the folder when this process ends."""
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guardian.py")), str(folder)]
    nowhere = subprocess.DEVNULL
    guardian = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True, bufsize=0
    )
    atexit.register(guardian.communicate)  # closes its input, and waits
    return guardian


def stop(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def unprivileged() -> list[str]:
    """Return the command in a user namespace: PostgreSQL refuses to run as root; the files stay ours."""
    return ["unshare", "--user", "--map-user=65534", "--map-group=65534"] if os.geteuid() == 0 else []


def start_database(folder: Path) -> str:
    postgres = binaries.find(binaries.POSTGRES)
    data, port = folder / "database", free_port()
    initdb = [str(Path(postgres).with_name("initdb")), "-D", str(data), "-U", "platform", "-A", "trust"]
    options = ["--locale-provider=libc", "-E", "UTF8", "--no-sync"]
    subprocess.run([*unprivileged(), *initdb, *options], check=True, capture_output=True)
    fast = {"full_page_writes": "off", "autovacuum": "off", "jit": "off", "max_connections": "200"}
    fast["track_activity_query_size"] = "16384"  # tests read whole statements of others
    fast |= {"fsync": "off", "synchronous_commit": "off", "wal_level": "minimal", "max_wal_senders": "0"}
    options = [word for name, value in fast.items() for word in ("-c", f"{name}={value}")]
    place = str(folder) if len(str(folder)) < LONGEST_PLACE else ""
    command = [postgres, "-D", str(data), "-h", HOST, "-p", str(port), "-k", place, *options]
    start(folder, "postgres", [*unprivileged(), *command], port, ended_by=signal.SIGQUIT)  # nothing of it is kept
    return f"postgresql://platform@{quote(place, safe='') or HOST}:{port}/postgres"  # a socket takes less than a port


def start_valkey(folder: Path) -> str:
    port = free_port()
    command = [binaries.find(binaries.VALKEY), "--port", str(port), "--bind", HOST, "--dir", str(folder)]
    start(folder, "valkey", [*command, "--save", ""], port)
    return f"redis://{HOST}:{port}/0"


def start_nats(folder: Path) -> str:
    port, conf = free_port(), folder / "nats.conf"
    # As the embedded server has it: without a size, streams may promise three quarters of what is free on the disk now.
    storage = f'jetstream {{ store_dir: "{folder / "nats"}", max_file_store: 1TB }}'
    conf.write_text(f"max_payload: 8MB\n{storage}\n")
    command = [binaries.find(binaries.NATS), "-c", str(conf), "-a", HOST, "-p", str(port)]
    start(folder, "nats", command, port)
    return f"nats://{HOST}:{port}"


def make_folder() -> Path:
    """Create the folder of this process: of the whole run in its first process, of a worker inside that one."""
    if "MLP_TEST_ROOT" not in os.environ:
        os.environ["MLP_TEST_ROOT"] = tempfile.mkdtemp(prefix="mlp-test-")
        return Path(os.environ["MLP_TEST_ROOT"])
    folder = Path(os.environ["MLP_TEST_ROOT"]) / os.environ["PYTEST_XDIST_WORKER"]
    folder.mkdir(exist_ok=True)
    return folder


def prepare_environment(folder: Path) -> None:
    """Prepare the environment at import: the settings read it, and pytest-django reads the settings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's threads would wait for each other beside the other workers
    if OWN_NATS in os.environ:  # a worker of a parallel run: the first process has started the others
        os.environ["NATS_URL"] = start_nats(folder)
    elif not all(os.environ.get(name) for name in GIVEN):
        os.environ["DATABASE_URL"] = start_database(folder)
        os.environ["REDIS_URL"] = start_valkey(folder)
        os.environ["NATS_URL"] = start_nats(folder)
        os.environ[OWN_NATS] = "1"


def ours() -> bool:
    """Whether this run has started its servers."""
    return OWN_NATS in os.environ


def separate_worker() -> None:
    """Give each process of a parallel run, and a second run, its own storage root, ports and Valkey database."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw15")
    number = int(worker.removeprefix("gw"))
    os.environ["MLP_ROOT"] = str(Path(os.environ["MLP_TEST_ROOT"]) / worker)
    os.environ["MLP_PORT_BASE"] = str(34000 + 20 * number)
    os.environ["REDIS_URL"] = os.environ["REDIS_URL"].rpartition("/")[0] + f"/{number}"


_folder = make_folder()
_guardian = start_guardian(_folder)
prepare_environment(_folder)
separate_worker()
