"""The servers that run embedded when no URL is given: PostgreSQL, Valkey, NATS. Their configuration and readiness.

PostgreSQL refuses to run as root. There it gets a user namespace of its own, in which it is nobody while its files stay
ours; where namespaces are forbidden (many containers) it runs as the unprivileged uid 65534, which may only reach its
folder. `postgres` is the cluster's superuser and has no password, so nobody can log in as it. A cluster is created by a
user with a name only, so a user id without one (`docker run --user 12345`) gets such a namespace, too.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

import psycopg
import redis
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from kernel import machine, nats_jwt, nats_tls
from kernel.secrets import secret
from kernel.sockets import Address

from . import binaries, tls
from .launch import NOBODY, die_with_parent
from .part import Part, run_dir, write_private

NAMESPACE = ["unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}"]
LOWERED = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
LOWERED += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--pdeathsig=keep"]


def embedded() -> list[Part]:
    makers = {"database": database, "valkey": valkey, "nats": nats}
    return [make() for name, make in makers.items() if settings.EMBEDDED[name]]


def ports(address: Address) -> tuple[tuple[str, int], ...]:
    """Return the ports that a server with this address listens on."""
    return (address,) if isinstance(address, tuple) else ()


def authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# --- PostgreSQL ----------------------------------------------------------------------------------------------------
POSTGRES_CONF = """\
hba_file = '{hba}'
listen_addresses = '{host}'
port = {port}
unix_socket_directories = '{sockets}'
unix_socket_permissions = 0700
max_connections = 200
shared_buffers = 128MB
effective_cache_size = 1GB
work_mem = 8MB
maintenance_work_mem = 64MB
max_worker_processes = 4
max_parallel_workers_per_gather = 0
jit = off
huge_pages = off
# Not in /dev/shm, which runs under Landlock share with the machine.
dynamic_shared_memory_type = mmap
wal_level = minimal
max_wal_senders = 0
max_wal_size = {wal}MB
checkpoint_timeout = 15min
log_checkpoints = off
log_min_messages = warning
# A statement that fails has its values in it, among them hashes of passwords: the log does not get it.
log_min_error_statement = panic
log_error_verbosity = terse
log_line_prefix = '%m [%p] '
lc_messages = 'C'
timezone = 'UTC'
log_timezone = 'UTC'
tcp_keepalives_idle = 60
"""


def database() -> Part:
    conf = run_dir() / "database" / "postgresql.conf"
    data = settings.MLP_ROOT / "database"
    prefix = [shutil.which(word) or word for word in unprivileged()[:1]] + unprivileged()[1:]
    return Part(
        "database",
        [*prefix, _tool("postgres"), "-D", str(data), f"--config-file={conf}"],
        "servers",
        ready=check_database,
        ports=((settings.INTERNAL_HOST, settings.DATABASE_PORT),) if settings.INNER_PORTS else (),
        stop_signal="INT",  # "fast": ends sessions without waiting for them
        stop_wait_s=8,
        plain=True,
        cwd=data,
        program="postgres",
        pid_files=(data / "postmaster.pid", settings.SOCKETS / f".s.PGSQL.{settings.DATABASE_PORT}.lock"),
        configure=functools.partial(configure_database, conf, data),
    )


def configure_database(conf: Path, data: Path) -> None:
    hba = conf.with_name("pg_hba.conf")
    addresses = ("127.0.0.0/8", "::1/128")
    clients = [f"host all platform {each}" for each in addresses] if settings.INNER_PORTS else ["local all platform"]
    write_private(hba, "".join(f"{client} scram-sha-256\n" for client in clients))
    places = {
        "hba": hba,
        "host": settings.INTERNAL_HOST if settings.INNER_PORTS else "",
        "sockets": "" if settings.INNER_PORTS else settings.SOCKETS,
    }
    quoted = {name: str(value).replace("'", "''") for name, value in places.items()}
    write_private(conf, POSTGRES_CONF.format(**quoted, port=settings.DATABASE_PORT, wal=most_wal()))
    if not (data / "PG_VERSION").exists():
        make_cluster(data)
    owner = _database_owner()
    if data.stat().st_uid != owner:  # another way to run unprivileged was used before
        for path in (data, *data.rglob("*")):
            os.chown(path, owner, owner, follow_symlinks=False)


def most_wal() -> int:
    """Return the MiB that the write-ahead log may take between two checkpoints: on a small disk a twentieth of it."""
    return max(64, min(1024, (shutil.disk_usage(settings.MLP_ROOT).total >> 20) // 20))


def make_cluster(data: Path) -> None:
    """Create the cluster, its user and its database in a temporary folder and rename it, so that it is complete or
    absent.
    """
    for half_made in data.parent.glob(".database.*"):
        shutil.rmtree(half_made, ignore_errors=True)
    draft = data.with_name(f".database.{secrets.token_hex(4)}")
    draft.mkdir(mode=0o700)
    os.chown(draft, _database_owner(), -1)
    options = ["-U", "postgres", "-A", "reject", "--data-checksums", "--encoding=UTF8", *locale_options()]
    _run([_tool("initdb"), "-D", str(draft), *options])
    password = secret(settings.MLP_ROOT, "database-password").replace("'", "''")
    statements = f"CREATE ROLE platform LOGIN CREATEDB PASSWORD '{password}';\nCREATE DATABASE mlp OWNER platform;\n"
    _run([_tool("postgres"), "--single", "-D", str(draft), "-c", "exit_on_error=on", "postgres"], statements)
    draft.rename(data)  # replaces the empty folder made by Part.prepare
    folder = os.open(data.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


def locale_options() -> list[str]:
    """Return initdb's options: sorted by code point, with case mapping for every script; before version 17 by the C
    library.
    """
    version = binaries.version_of(_tool("postgres"), "--version", binaries.LIMIT_S)
    if binaries.numbers(version) < (17,):
        return ["--locale=C.UTF-8", "--locale-provider=libc"]
    return ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(
        [*unprivileged(), *command],
        input=text,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        start_new_session=True,  # Ctrl-C is handled by `up` only
        preexec_fn=lambda: die_with_parent(9),
    )
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{done.stdout.strip()[-2000:]}")


def _tool(name: str) -> str:
    """Return the path of one of PostgreSQL's programs; an existing cluster is run by the version that made it."""
    made_by = settings.MLP_ROOT / "database" / "PG_VERSION"
    major = int(made_by.read_text()) if made_by.exists() else 0
    return str(Path(binaries.find(binaries.POSTGRES, major)).with_name(name))


def _database_owner() -> int:
    return NOBODY if unprivileged()[:1] == LOWERED[:1] else os.geteuid()


@functools.cache
def unprivileged() -> list[str]:
    """Return the command prefix that keeps PostgreSQL from running as root, or as a user without a name.

    Raises ImproperlyConfigured where there is no way.
    """
    if os.geteuid() != 0:
        return _named()
    for prefix in (NAMESPACE, LOWERED):
        if _works(prefix):
            return prefix
    raise ImproperlyConfigured(
        "PostgreSQL does not run as root, and this system lets root neither make a user namespace (unshare) nor drop "
        "its rights (setpriv). Run the platform as an ordinary user, or name a PostgreSQL server in DATABASE_URL."
    )


def _works(prefix: list[str]) -> bool:
    """Return whether PostgreSQL can be run with this prefix, and reaches its folder."""
    reach = 'test -r "$1" && test -x "$1" && exec "$2" --version'
    probe = [*prefix, "sh", "-c", reach, "sh", str(settings.MLP_ROOT), _tool("postgres")]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(probe, capture_output=True, cwd="/").returncode == 0
    return False


def _named() -> list[str]:
    """Return the prefix with which an ordinary user has a name; a cluster that exists needs none to run."""
    user = os.geteuid()
    if machine.has_name(user) or (settings.MLP_ROOT / "database" / "PG_VERSION").exists():
        return []
    if machine.has_name(NOBODY) and _works(NAMESPACE):
        return NAMESPACE
    raise ImproperlyConfigured(
        f"The user id {user} has no name on this machine, which PostgreSQL needs to create a database, and this system "
        f"allows no user namespace that would give it one. Add a line such as `mlp:x:{user}:{os.getegid()}::/:/bin/sh` "
        "to /etc/passwd, run the platform as a user that is in it, or name a PostgreSQL server in DATABASE_URL."
    )


def check_database() -> None:
    values = settings.DATABASES["default"]
    parameters = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    given = {name: values[key] for name, key in parameters.items() if values[key]}
    with psycopg.connect(**{**values["OPTIONS"], **given, "connect_timeout": 3}) as link:
        link.execute("SELECT 1")


# --- Valkey --------------------------------------------------------------------------------------------------------
VALKEY_CONF = """\
{listen}
protected-mode yes
requirepass {password}
dir "{data}"
appendonly yes
appendfsync everysec
aof-load-truncated yes
save ""
hz 1
maxmemory-policy noeviction
daemonize no
loglevel notice
logfile ""
shutdown-timeout 2
"""


def valkey() -> Part:
    conf = run_dir() / "valkey" / "valkey.conf"
    data = settings.MLP_ROOT / "valkey"
    return Part(
        "valkey",
        [binaries.find(binaries.VALKEY), str(conf)],
        "servers",
        ready=check_valkey,
        ports=ports(settings.VALKEY_ADDRESS),
        plain=True,
        cwd=data,
        configure=functools.partial(configure_valkey, conf, data),
    )


def configure_valkey(conf: Path, data: Path) -> None:
    address = settings.VALKEY_ADDRESS
    if isinstance(address, tuple):
        listen = f"bind {address[0]}\nport {address[1]}"
    else:
        listen = f'port 0\nunixsocket "{address}"\nunixsocketperm 700'
    password = secret(settings.MLP_ROOT, "valkey-password")
    write_private(conf, VALKEY_CONF.format(listen=listen, data=data, password=password))


def check_valkey() -> None:
    link = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
    with contextlib.closing(link):
        link.ping()


# --- NATS ----------------------------------------------------------------------------------------------------------
REPORTS = "job_metrics.>"  # the only subjects of the platform that jobs can publish on
NATS_CONF = """\
listen: {listen}
server_name: {name}
max_payload: 8MB
max_pending: 64MB
max_connections: 16384
write_deadline: "10s"
jetstream {{
  store_dir: {store}
  max_memory_store: 256MB
  max_file_store: 1TB  # a promise of streams, not of the disk: each has its own limit
  sync_interval: "1s"  # at most a second is lost with the machine's power, nothing with a process
}}
accounts {{
  {platform} {{
    jetstream: enabled
    # The platform signs a challenge: another server at this port would learn nothing. The password is for operators.
    users: [ {{ nkey: {nkey} }}, {{ user: platform, password: {password} }} ]
    exports: [ {{ service: "{reports}", accounts: [ {jobs} ] }} ]
  }}
  # A message may name any subject for its reply, and the server would publish there. In an account of their own that
  # is a subject of the jobs only: no stream, key or service of the platform is behind it.
  {jobs} {{
    imports: [ {{ service: {{ account: {platform}, subject: "{reports}" }} }} ]
    limits: {{ max_connections: 8192, max_payload: {payload}, max_subscriptions: {subscriptions} }}
  }}
}}
# The platform's own connections begin with TLS (kernel/nats_tls.py); clients that say nothing are sent the greeting.
tls {{ {certificates}, handshake_first: "100ms", timeout: 10, min_version: "1.2" }}
allow_non_tls: true
authorization {{
  timeout: 10  # on a busy machine an answer takes a while
  # Everybody else is asked about: a job may report on its own subjects (tracking/metrics/nats_auth.py).
  auth_callout {{ issuer: {issuer}, account: {platform}, auth_users: [ {nkey}, platform ] }}
}}
"""


def nats() -> Part:
    conf = run_dir() / "nats" / "nats.conf"
    return Part(
        "nats",
        [binaries.find(binaries.NATS), "-c", str(conf)],
        "servers",
        ready=check_nats,
        ports=(nats_address(),),
        late_ms=2,  # less than a report takes: idle it has many timers, each of which wakes several threads
        plain=True,
        configure=functools.partial(configure_nats, conf),
    )


def nats_address() -> tuple[str, int]:
    """Return where NATS listens: on the gateways' network, since jobs and log shippers elsewhere report to it."""
    return settings.MLP_HOST, settings.NATS_PORT


def configure_nats(conf: Path) -> None:
    store = settings.MLP_ROOT / "nats"
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    keep_streams(store / "jetstream")
    text = NATS_CONF.format(
        platform=nats_jwt.PLATFORM_ACCOUNT,
        jobs=nats_jwt.JOBS_ACCOUNT,
        reports=REPORTS,
        payload=nats_jwt.MAX_PAYLOAD,
        subscriptions=nats_jwt.MAX_SUBSCRIPTIONS,
        listen=json.dumps(authority(*nats_address())),
        name=f"platform-{settings.MLP_PORT_BASE}",
        store=json.dumps(str(store)),
        nkey=nats_jwt.platform().public,
        password=json.dumps(secret(settings.MLP_ROOT, "nats-password")),
        issuer=nats_jwt.issuer().public,
        certificates=_nats_certificates(),
    )
    nats_tls.ensure()
    write_private(conf, text)


def _nats_certificates() -> str:
    """Return the certificates: our own processes ask for theirs by its name, others are shown that of the gateways."""
    own = f"cert_file: {json.dumps(str(nats_tls.certificate_path()))}, key_file: {json.dumps(str(nats_tls.key_path()))}"
    if not settings.TLS.cert:
        return own
    pair = json.dumps(str(tls.pair_path()))
    return f"certs: [ {{ cert_file: {pair}, key_file: {pair} }}, {{ {own} }} ]"


def keep_streams(folder: Path) -> None:
    """Give the platform's account the streams of earlier versions, where there was only the global account."""
    before, now = folder / "$G", folder / nats_jwt.PLATFORM_ACCOUNT
    if before.is_dir() and not now.exists():
        before.rename(now)


def check_nats() -> None:
    """Connect as the platform's user and wait for the answer; a server with JetStream answers at once."""
    host = settings.INTERNAL_HOST if nats_address()[0] in {"0.0.0.0", "::"} else nats_address()[0]
    with (
        socket.create_connection((host, settings.NATS_PORT), timeout=2) as bare,
        nats_tls.context().wrap_socket(bare, server_hostname=nats_tls.HOSTNAME) as link,
        link.makefile("rwb") as stream,
    ):
        info = json.loads(stream.readline().removeprefix(b"INFO "))
        if not info.get("jetstream"):
            raise RuntimeError("JetStream is not ready")
        hello = nats_jwt.platform().hello(info.get("nonce", ""))
        stream.write(b"CONNECT %s\r\nPING\r\n" % json.dumps(hello).encode())
        stream.flush()
        if (answer := stream.readline().strip()) != b"PONG":
            raise RuntimeError(answer.decode(errors="replace"))
