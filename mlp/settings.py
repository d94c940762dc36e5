"""All settings, read from the environment and described here and in mlp/*_settings.py; docs/settings.md lists them."""

from __future__ import annotations

import gc
import ipaddress
import os
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

from kernel.environment import Section, default_root, postgres_settings, usable
from kernel.secrets import secret
from kernel.sockets import folder as socket_folder
from mlp import (
    backup_settings,
    cluster_settings,
    host_settings,
    limit_settings,
    monitoring_settings,
    part_settings,
    rest_settings,
    tls_settings,
)
from mlp.operators import admin_theme

# What else is a setting, by subject.
# isort: off
# fmt: off
from mlp.aiops_settings import (  # noqa: F401
    AIOPS_EXPORT_LINES, AIOPS_LABELS_PER_USER, AIOPS_LOGSTORE, AIOPS_RETENTION_DAYS, AIOPS_RETENTION_MIB,
    AIOPS_RULES_PER_USER, AIOPS_S3_ACCESS_KEY, AIOPS_S3_BUCKET, AIOPS_S3_ENDPOINT, AIOPS_S3_REGION,
    AIOPS_S3_SECRET_KEY, AIOPS_SEARCHES_PER_USER, AIOPS_SESSION_QUIET_S, AIOPS_SUBJECT, AIOPS_TRAINING_CPU,
    AIOPS_TRAINING_PARAMETERS, AIOPS_TRAINING_RAM_MIB, AIOPS_TRAINING_WINDOW_S, AIOPS_USER_MIB, AIOPS_WATCHED_PER_USER,
    LOGS, OPENSEARCH_URL,
)
from mlp.django_settings import (  # noqa: F401
    APPEND_SLASH, ASGI_APPLICATION, AUTHENTICATION_BACKENDS, AUTH_PASSWORD_VALIDATORS, AUTH_USER_MODEL, BASE_DIR,
    CSRF_FAILURE_VIEW, INSTALLED_APPS, LANGUAGES, LANGUAGE_CODE, LOCALE_PATHS, LOGIN_REDIRECT_URL, LOGIN_URL,
    LOGOUT_REDIRECT_URL, MIDDLEWARE, PASSWORD_RESET_TIMEOUT, ROOT_URLCONF, STATIC_URL, TEMPLATES, TIME_ZONE, USE_I18N,
    USE_TZ, WHITENOISE_IMMUTABLE_FILE_TEST, WHITENOISE_USE_FINDERS, WSGI_APPLICATION,
)
from mlp.ldap_settings import LDAP_DIRECTORY  # noqa: F401
from mlp.mail_settings import (  # noqa: F401
    DEFAULT_FROM_EMAIL, EMAIL_HOST, EMAIL_HOST_PASSWORD, EMAIL_HOST_USER, EMAIL_PORT, EMAIL_TIMEOUT, EMAIL_USE_SSL,
    EMAIL_USE_TLS, NOTICES, WEBHOOK_PRIVATE,
)
from mlp.packages_settings import (  # noqa: F401
    NOTEBOOK_PACKAGES, PACKAGES, PACKAGES_CACHE_MIB, PACKAGES_DAYS, PACKAGES_MIB, PACKAGES_TIMEOUT_S,
    PACKAGES_USER_MIB, PIP_EXTRA_INDEX_URL, PIP_INDEX_URL, PIP_PROXY, PIP_TIMEOUT_S,
)
from mlp.run_settings import (  # noqa: F401
    APP_ANSWER_S, APP_IDLE_S, APP_MAX_FAILURES, APP_QUEUE, APP_SCALE_IN_S, APP_START_S, BUCKET_FOLDERS,
    DATASET_SILENCE_S, DATA_HOME_LIMIT, DISK_RESERVE_MIB,
    GPU_TYPES, JOB_ATTACH, JOB_CANCEL_GRACE_S, JOB_DISK_MIB, JOB_LOG_LIMIT, JOB_NATS_BYTES_S, JOB_NATS_MESSAGES_S,
    LANDLOCK_SHM, LANGUAGE_START_S, MAX_CPU, MAX_GPU, MAX_RAM_MIB, MLP_CONFINEMENT, MLP_RUNNER, MODEL_CHECK_S,
    MODEL_CHECK_TASKS, PREEMPT_EXEMPT_S, PREEMPT_GRACE_S, PREEMPT_MAX, PREEMPT_WAIT_S, RUNS, RUN_INTERNET, RUN_NETWORK,
    RUN_NETWORK_SHARED, RUN_PYTHON, TRY_TIMEOUT_S, VLLM_GPU_PERCENT,
)
from mlp.workspace_settings import (  # noqa: F401
    WORKSPACES, WORKSPACE_DISK_MIB, WORKSPACE_HOURS, WORKSPACE_IDLE_MINUTES, WORKSPACE_PACKAGES, WORKSPACE_URL,
    WORKSPACE_WARN_MINUTES,
)
from mlp.signin_settings import OIDC_PROVIDERS, ROLES, SECOND_FACTOR, SIGNIN  # noqa: F401
# fmt: on
# isort: on

gc.disable()  # until everything is imported (kernel/apps.py): a third of the time that a process takes to start

# --- addresses and data -----------------------------------------------------------------------------------------------
place = Section("Addresses and data")
MLP_ROOT = Path(
    place.text(
        "MLP_ROOT",
        str(default_root(BASE_DIR)),
        shown="`./var` in a checkout, `~/.local/share/mlp` where pip has installed the platform",
        help="the folder for everything that is kept: data, databases, logs, secrets",
    )
).resolve()
usable(MLP_ROOT)
MLP_HOST = place.text(
    "MLP_HOST",
    "127.0.0.1",
    help="the IP address to listen on. When it is not a loopback address, the gateways and NATS listen there and every "
    "other process on 127.0.0.1",
)
MLP_PORT_BASE = place.integer(
    "MLP_PORT_BASE",
    30000,
    1024,
    65000,
    help="gateway +1, application gateway +2, web +3, websockets +4, uploads +5, the proxy of runs +6, "
    "under TLS the gateways for runs on this machine +7 and +8, routes to applications +9, "
    "NATS +10, database +11, Valkey +12, workspaces +13, small requests with log lines +14",
)

try:
    _loopback = ipaddress.ip_address(MLP_HOST).is_loopback
except ValueError:
    if MLP_HOST != "localhost":
        raise ImproperlyConfigured(f"MLP_HOST must be an IP address or localhost, not {MLP_HOST!r}")
    _loopback = True
# What only the platform itself talks to stays on the loopback interface when the gateways face a network.
INTERNAL_HOST = MLP_HOST if _loopback else "127.0.0.1"

GATEWAY_PORT = MLP_PORT_BASE + 1
APP_GATEWAY_PORT = MLP_PORT_BASE + 2
WEB_PORT = MLP_PORT_BASE + 3
WEBSOCKET_PORT = MLP_PORT_BASE + 4
DATA_PORT = MLP_PORT_BASE + 5
RUN_PROXY_PORT = MLP_PORT_BASE + 6  # on the loopback interface of each run, not on ours
# Under TLS, plain HTTP for the runs of this machine; on the loopback interface.
PLAIN_GATEWAY_PORT, PLAIN_APP_GATEWAY_PORT = MLP_PORT_BASE + 7, MLP_PORT_BASE + 8
ROUTE_PORT = MLP_PORT_BASE + 9
NATS_PORT = MLP_PORT_BASE + 10
DATABASE_PORT = MLP_PORT_BASE + 11
VALKEY_PORT = MLP_PORT_BASE + 12
WORKSPACE_PORT = MLP_PORT_BASE + 13
LOGS_PORT = MLP_PORT_BASE + 14
# Where the gateways and NATS listen, seen from this machine.
GATEWAY_HOST = INTERNAL_HOST if MLP_HOST in {"0.0.0.0", "::"} else MLP_HOST
TLS = tls_settings.read()
_url = place.url(
    "MLP_URL",
    ("http", "https"),
    shown="`http://{host}:{base+1}`, `https://…` with `MLP_TLS_CERT`",
    help="the gateway's address as users see it; `https://…` also when TLS ends in front of it ([tls.md](tls.md))",
)
GATEWAY_URL = (_url or f"{TLS.scheme}://{GATEWAY_HOST}:{TLS.port or GATEWAY_PORT}").rstrip("/")
GATEWAY_URL_GIVEN = bool(_url or TLS.cert)  # otherwise only this machine may be able to reach it
APP_GATEWAY_URL = place.url(
    "MLP_APP_URL",
    ("http", "https"),
    shown="the gateway's host, port `{base+2}`",
    help="the application gateway's address as users see it",
).rstrip("/")
TLS.check(GATEWAY_URL)
if TLS.cert and not APP_GATEWAY_URL:  # the host of the certificate
    _host = urlsplit(GATEWAY_URL).netloc.removesuffix(f":{urlsplit(GATEWAY_URL).port}")
    APP_GATEWAY_URL = f"https://{_host}:{TLS.app_port or APP_GATEWAY_PORT}"
NGINX_PROGRAM = place.text(
    "MLP_NGINX",
    shown="the nginx that is installed with the platform, else the system's",
    help="the path of the nginx program to use",
)
LOG_LEVEL = place.choice(
    "MLP_LOG_LEVEL",
    "INFO",
    ["DEBUG", "INFO", "WARNING", "ERROR"],
    help="`DEBUG`, `INFO`, `WARNING` or `ERROR`: the level of the platform's own logs in `{root}/log/{part}/`",
)

# --- access -----------------------------------------------------------------------------------------------------------
access = Section("Access and secrets")
SECRET_KEY = access.text(
    "MLP_SECRET_KEY",
    shown="random, kept in `{root}/secret-key`",
    help="the key that tokens and sessions are derived from; a new key revokes all of them. The secrets of webhooks of "
    "the registry and the keys of buckets are encrypted with it, and have to be set again after a change",
) or secret(MLP_ROOT, "secret-key", 64)
ADMIN_PASSWORD = access.text(
    "MLP_ADMIN_PASSWORD",
    shown="random, kept in `{root}/admin-password` (mode 600)",
    help="the password of the administrator `admin`, set at each start",
)
DEBUG = False
CSRF_TRUSTED_ORIGINS = access.items(
    "MLP_TRUSTED_ORIGINS",
    help="origins (`https://…`, separated by commas) whose forms are accepted, where a proxy changes the host name",
)
TRUSTED_PROXIES = access.networks(
    "MLP_TRUSTED_PROXIES",
    help="addresses or networks of the proxies in front of the gateways, separated by commas: only their "
    "`X-Forwarded-For` is believed. Without it the address that connects counts ([tls.md](tls.md))",
)
REGISTRATION_NEEDS_APPROVAL = access.flag(
    "MLP_REGISTRATION_NEEDS_APPROVAL", False, help="whether an administrator must activate new users"
)
REGISTRATIONS_PER_HOUR = access.integer(
    "MLP_REGISTRATIONS_PER_HOUR", 60, 1, help="registrations allowed from one address per hour"
)
LOGIN_FAILURES_BEFORE_SLOWDOWN = access.integer(
    "MLP_LOGIN_FAILURES_BEFORE_SLOWDOWN", 10, 1, help="failed logins before further attempts have to wait"
)
SESSION_COOKIE_AGE = access.integer(
    "MLP_SESSION_S", 14 * 24 * 3600, 60, unit="s", help="how long a login in the browser lasts"
)
ADMIN_SESSION_S = access.integer(
    "MLP_ADMIN_SESSION_S", 12 * 3600, 60, unit="s", help="how long an administrator's login lasts, if that is shorter"
)
SHARE_LINKS = access.flag(
    "MLP_SHARE_LINKS", True, help="whether objects can be shared by a link; without it existing links do not work"
)
SHARES_PER_USER = access.integer("MLP_SHARES_PER_USER", 1000, 1, help="shares that a user can have in force at once")
PASSWORD_MIN_LENGTH = access.integer(
    "MLP_PASSWORD_MIN_LENGTH", 8, 8, 64, help="characters that a new password must have; existing passwords stay valid"
)

limits = limit_settings.read(proxied=GATEWAY_URL.startswith("https://") and not TRUSTED_PROXIES and not TLS.cert)
CONNECTIONS_PER_ADDRESS, WEBSOCKETS_PER_USER, FOLLOWED_LOGS_PER_USER, JOB_VALUES, TRASH_DAYS = limits
DOWNLOADS_PER_USER = limit_settings.of_downloads()
TRACE_DAYS, TRACE_PRICES = limit_settings.of_traces()

# --- servers: given by URL, else embedded -----------------------------------------------------------------------------
servers = Section("Servers")
_database_url = servers.text(
    "DATABASE_URL",
    shown="the embedded server",
    help="a PostgreSQL server to use: `postgresql://user:password@host:port/name`",
)
_redis_url = servers.url(
    "REDIS_URL",
    ("redis", "rediss", "unix"),
    shown="the embedded server",
    help="a Valkey or Redis server to use: `redis://:password@host:6379/0` or `unix://:password@/path?db=0`",
)
_nats_url = servers.url(
    "NATS_URL", ("nats", "tls"), shown="the embedded server", help="a NATS server with JetStream to use"
)
_nkey_seed = servers.text(
    "NKEY_SEED_FILENAME",
    help="a file with the seed of the NKey that the platform uses to log in to the NATS server of `NATS_URL`",
)
INNER_PORTS = servers.flag(
    "MLP_INNER_PORTS",
    False,
    help="whether the platform's own servers listen on ports of the loopback interface instead of unix sockets, which "
    "no other process of this machine can take or reach",
)
EMBEDDED = {"database": not _database_url, "nats": not _nats_url, "valkey": not _redis_url}
SOCKETS = socket_folder(MLP_ROOT)


PART_ADDRESS, INSTANCE_DIR = part_settings.read()


def _inner(name: str, port: int) -> tuple[str, int] | str:
    """Return the address of a server of ours: the path of its socket, or its (host, port)."""
    if given := PART_ADDRESS.get(name):
        return given
    return (INTERNAL_HOST, port) if INNER_PORTS else str(SOCKETS / f"{name}.sock")


WEB_ADDRESS = _inner("web", WEB_PORT)
WEBSOCKET_ADDRESS = _inner("websockets", WEBSOCKET_PORT)
DATA_ADDRESS = _inner("data", DATA_PORT)
ROUTE_ADDRESS = _inner("route", ROUTE_PORT)  # the process `data` listens there, too (apps/routing.py)
LOGS_ADDRESS = _inner("logs", LOGS_PORT)  # and there (aiops/web/log_listener.py)
VALKEY_ADDRESS = _inner("valkey", VALKEY_PORT)
_database_host = INTERNAL_HOST if INNER_PORTS else quote(str(SOCKETS), safe="")
# require_auth: SCRAM only, so the password itself is never sent, whichever server answers.
DATABASE_URL = _database_url or (
    f"postgresql://platform:{quote(secret(MLP_ROOT, 'database-password'))}@{_database_host}:{DATABASE_PORT}/mlp"
    "?require_auth=scram-sha-256"
)
_valkey_password = quote(secret(MLP_ROOT, "valkey-password"))
REDIS_URL = _redis_url or (
    f"redis://:{_valkey_password}@{INTERNAL_HOST}:{VALKEY_PORT}/0"
    if INNER_PORTS
    else f"unix://:{_valkey_password}@{quote(VALKEY_ADDRESS)}?db=0"
)
_nats = urlsplit(_nats_url or f"nats://{GATEWAY_HOST}:{NATS_PORT}")
NATS_URL = f"{_nats.scheme}://{_nats.hostname}:{_nats.port or 4222}"
NATS_USER = unquote(_nats.username or "") if not EMBEDDED["nats"] else ""
NATS_NKEY_SEED = _nkey_seed if not EMBEDDED["nats"] else ""
NATS_PASSWORD = unquote(_nats.password or "") if not EMBEDDED["nats"] else ""
KAFKA_URL = servers.url(
    "KAFKA_URL", ("kafka", "kafka+ssl"), extra=("kafka", "kafka"),
    help="a Kafka broker, `kafka://host:9092`, from which job metrics are read in addition to NATS and HTTP",
)  # fmt: skip
KAFKA_TOPIC = servers.text("KAFKA_TOPIC", "job_metrics", help="the topic with the job metrics")

DATABASES = {"default": postgres_settings(DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": {"pool_class": "kernel.valkey.Pool"},
    }
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "kernel.valkey.ChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "capacity": 1000},
    }
}

# --- runs and resources -----------------------------------------------------------------------------------------------
RUN_GATEWAY_URL = place.url(
    "MLP_RUN_URL",
    ("http", "https"),
    f"http://{INTERNAL_HOST}:{PLAIN_GATEWAY_PORT}" if TLS.cert and MLP_RUNNER == "local" else GATEWAY_URL,
    shown="`MLP_URL`; with `MLP_TLS_CERT` and runs on this machine `http://127.0.0.1:{base+7}`",
    help="the gateway's address as jobs see it, where that differs from `MLP_URL` and they have no network "
    "of their own",
).rstrip("/")
ALLOWED_HOSTS = host_settings.read(access, (_url, APP_GATEWAY_URL, RUN_GATEWAY_URL, WORKSPACE_URL) if _url else ())
RUN_NATS_URL = place.url(
    "MLP_RUN_NATS_URL",
    ("nats", "tls"),
    shown="the platform's own NATS; with runs on a cluster at the host of `MLP_RUN_URL`",
    help="the address of the platform's own NATS server as jobs see it, where they have no network of their own",
) or ("" if MLP_RUNNER == "local" else f"nats://{urlsplit(RUN_GATEWAY_URL).hostname}:{NATS_PORT}")
DISK_MINIMUM_MIB, DATABASE_LIMIT_MIB = limit_settings.of_disk(), limit_settings.of_database(MLP_ROOT)
OUTPUTS_LIMIT_MIB = limit_settings.of_outputs(MLP_ROOT)
BUCKET_CACHE_MIB = limit_settings.of_bucket_cache()
CODE_FILES, CODE_BYTES, CODE_LIMIT = limit_settings.of_code()
SCHEDULES_PER_USER = limit_settings.of_automation()
SUBMISSIONS_PER_MINUTE = limit_settings.of_submissions()

MLP_K8S = cluster_settings.read()
BUCKET_MOUNTS = BUCKET_FOLDERS if MLP_RUNNER == "local" else cluster_settings.bucket_folders(MLP_K8S["bucket_claims"])
METRICS_TOKEN, OTLP_ENDPOINT = monitoring_settings.read()
METRICS_TOKEN = METRICS_TOKEN or secret(MLP_ROOT, "metrics-token")
BACKUP_PASSPHRASE = backup_settings.read()
_beside = [PACKAGES, LOGS, NOTICES, backup_settings.BACKUP, monitoring_settings.MONITORING, cluster_settings.CLUSTER]
_beside.append(part_settings.PARTS)
SECTIONS = [place, tls_settings.TLS, access, SIGNIN, limit_settings.LIMITS, servers, RUNS, WORKSPACES, *_beside]

# --- Django ---------------------------------------------------------------------------------------------------------
STATIC_ROOT = MLP_ROOT / "run" / "static"
STATIC_ROOT.mkdir(parents=True, exist_ok=True)

# Cookies are restricted to https when users reach the gateway by it. Their names then have the prefix that keeps other
# hosts of the domain and plain HTTP from setting them.
_tls = GATEWAY_URL.startswith("https://")
SESSION_COOKIE_NAME = "__Host-sessionid" if _tls else "sessionid"
CSRF_COOKIE_NAME = "__Host-csrftoken" if _tls else "csrftoken"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _tls
SESSION_COOKIE_HTTPONLY = True
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _tls else None
SECURE_HSTS_SECONDS = TLS.hsts_s if _tls else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = _tls
SECURE_SSL_REDIRECT = False  # nginx or the load balancer in front redirects
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Without TLS these three can only be false: the platform then has to be on a trusted network (SECURITY.md).
SILENCED_SYSTEM_CHECKS = ["security.W008"] + ([] if _tls else ["security.W004", "security.W012", "security.W016"])
FILE_UPLOAD_TEMP_DIR = None
DATA_UPLOAD_MAX_MEMORY_SIZE = 20 << 20

REST_FRAMEWORK = rest_settings.REST_FRAMEWORK
SPECTACULAR_SETTINGS = rest_settings.spectacular(SESSION_COOKIE_NAME)
UNFOLD = admin_theme.UNFOLD

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {
        "handlers": ["stderr"],
        "level": LOG_LEVEL,
    },
    "loggers": {
        "django.server": {"level": "WARNING"},
        "django.request": {"level": "ERROR"},
        # A request that is refused for its host or size is in the access log; here it would be a traceback for each.
        "django.security": {"level": "CRITICAL"},
        "django.security.csrf": {"level": "WARNING"},
        "daphne.http_protocol": {"level": "WARNING"},
    },
}
TEST_RUN = "PYTEST_VERSION" in os.environ
SITE_TITLE = _("ML platform")
