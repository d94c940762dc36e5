"""Every setting, read from the environment (the README's table explains each). One file, no variants."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

from kernel.environment import env, env_bool, env_choice, env_int, env_list, env_url, postgres_settings
from kernel.secrets import secret
from mlp import cluster_settings
from mlp.operators import admin_theme

BASE_DIR = Path(__file__).resolve().parent.parent

# --- where things are -------------------------------------------------------------------------------------------
MLP_ROOT = Path(env("MLP_ROOT", str(BASE_DIR / "var"))).resolve()
MLP_HOST = env("MLP_HOST", "127.0.0.1")
MLP_PORT_BASE = env_int("MLP_PORT_BASE", 30000, 1024, 65000)
MLP_RUNNER = env("MLP_RUNNER", "local")
MLP_K8S = cluster_settings.read()
MLP_CONFINEMENT = env("MLP_CONFINEMENT", "auto")

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
NATS_PORT = MLP_PORT_BASE + 10
DATABASE_PORT = MLP_PORT_BASE + 11
VALKEY_PORT = MLP_PORT_BASE + 12
_public_host = INTERNAL_HOST if MLP_HOST in {"0.0.0.0", "::"} else MLP_HOST
GATEWAY_URL = env_url("MLP_URL", f"http://{_public_host}:{GATEWAY_PORT}", ("http", "https")).rstrip("/")
# The application gateway as its users see it; empty: the gateway's host, and its own port.
APP_GATEWAY_URL = env_url("MLP_APP_URL", "", ("http", "https")).rstrip("/") if env("MLP_APP_URL") else ""
RUN_GATEWAY_URL = env_url("MLP_RUN_URL", GATEWAY_URL, ("http", "https")).rstrip("/")  # where a run finds it

# --- secrets ----------------------------------------------------------------------------------------------------
SECRET_KEY = env("MLP_SECRET_KEY") or secret(MLP_ROOT, "secret-key", 64)
DEBUG = False
ALLOWED_HOSTS = env_list("MLP_ALLOWED_HOSTS") or ["*"]
CSRF_TRUSTED_ORIGINS = env_list("MLP_TRUSTED_ORIGINS")

# --- servers: given by URL, else embedded -------------------------------------------------------------------------
EMBEDDED = {
    "database": not env("DATABASE_URL"),
    "nats": not env("NATS_URL"),
    "valkey": not env("REDIS_URL"),
}
DATABASE_URL = env("DATABASE_URL") or (
    f"postgresql://platform:{quote(secret(MLP_ROOT, 'database-password'))}@{INTERNAL_HOST}:{DATABASE_PORT}/mlp"
)
REDIS_URL = env_url(
    "REDIS_URL",
    f"redis://:{quote(secret(MLP_ROOT, 'valkey-password'))}@{INTERNAL_HOST}:{VALKEY_PORT}/0",
    ("redis", "rediss"),
)
_nats_host = INTERNAL_HOST if _loopback else _public_host
_nats = urlsplit(env_url("NATS_URL", f"nats://{_nats_host}:{NATS_PORT}", ("nats", "tls")))
NATS_URL = f"{_nats.scheme}://{_nats.hostname}:{_nats.port or 4222}"
NATS_USER = unquote(_nats.username or "") if not EMBEDDED["nats"] else "platform"
NATS_NKEY_SEED = env("NKEY_SEED_FILENAME") if not EMBEDDED["nats"] else ""
NATS_PASSWORD = unquote(_nats.password or "") if not EMBEDDED["nats"] else secret(MLP_ROOT, "nats-password")
# Where given, metrics that scripts send to this topic are read as well.
KAFKA_URL = env_url("KAFKA_URL", "", ("kafka", "kafka+ssl")) if env("KAFKA_URL") else ""
KAFKA_TOPIC = env("KAFKA_TOPIC", "job_metrics")

DATABASES = {"default": postgres_settings(DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [{"address": REDIS_URL, "socket_timeout": None}], "capacity": 1000},
    }
}

# --- the product's own settings -------------------------------------------------------------------------------------
REGISTRATION_NEEDS_APPROVAL = env_bool("MLP_REGISTRATION_NEEDS_APPROVAL", False)
REGISTRATIONS_PER_HOUR = env_int("MLP_REGISTRATIONS_PER_HOUR", 60, 1)  # from one address
LOGIN_FAILURES_BEFORE_SLOWDOWN = env_int("MLP_LOGIN_FAILURES_BEFORE_SLOWDOWN", 10, 1)
TRY_TIMEOUT_S = env_int("MLP_TRY_TIMEOUT_S", 24 * 3600, 1)
DATASET_SILENCE_S = env_int("MLP_DATASET_SILENCE_S", 600, 1)
DATA_HOME_LIMIT = env_int("MLP_HOME_LIMIT", 1 << 30)
JOB_CANCEL_GRACE_S = env_int("MLP_JOB_CANCEL_GRACE_S", 10, 0, 600)
JOB_LOG_LIMIT = env_int("MLP_JOB_LOG_LIMIT", 256 << 20)
AIOPS_TRAINING_WINDOW_S = env_int("MLP_AIOPS_TRAINING_WINDOW_S", 24 * 3600, 60)
AIOPS_TRAINING_RAM_MIB = env_int("MLP_AIOPS_TRAINING_RAM", 8192, 512)
AIOPS_LOGSTORE = env_choice("MLP_AIOPS_LOGSTORE", "DATABASE", ["DATABASE", "OPENSEARCH"]).lower()
OPENSEARCH_URL = env_url("OPENSEARCH_URL", "", ("http", "https")) if env("OPENSEARCH_URL") else ""
AIOPS_RETENTION_DAYS = env_int("MLP_AIOPS_RETENTION_DAYS", 7, 1, 3650)
AIOPS_RETENTION_MIB = env_int("MLP_AIOPS_RETENTION_MIB", 4096, 16)
AIOPS_TRAINING_PARAMETERS: dict = {}  # overrides of the model's own; tests make it small
WEBHOOK_PRIVATE = env_bool("MLP_WEBHOOK_PRIVATE", False)
JOB_DISK_MIB = env_int("MLP_JOB_DISK_MIB", 20 << 10, 1)
MODEL_CHECK_S = env_int("MLP_MODEL_CHECK_S", 120, 1)
APP_START_S = env_int("MLP_APP_START_S", 120, 1)
APP_MOST_FAILURES = env_int("MLP_APP_MOST_FAILURES", 5, 1, 100)
DISK_RESERVE_MIB = env_int("MLP_DISK_RESERVE_MIB", 1024)

# --- Django ---------------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "daphne",
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "kernel",
    "mlp",
    "mlp.operators",
    "supervision",
    "accounts",
    "resources",
    "datasets",
    "jobs",
    "models_app",
    "apps",
    "aiops",
]
MIDDLEWARE = [
    "kernel.middleware.ApiErrors",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "kernel.middleware.ContentSecurityPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "mlp.urls"
WSGI_APPLICATION = "mlp.wsgi.application"
ASGI_APPLICATION = "mlp.asgi.application"
APPEND_SLASH = False
CSRF_FAILURE_VIEW = "mlp.visitors.pages.forbidden"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "accounts.settings_pages.unread",
            ]
        },
    }
]

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
LOGIN_URL = "/regist_login"
LOGIN_REDIRECT_URL = "/index"
LOGOUT_REDIRECT_URL = "/regist_login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 8}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
STATIC_ROOT = MLP_ROOT / "run" / "static"
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
STATICFILES_DIRS = []
WHITENOISE_USE_FINDERS = True  # so that Daphne alone serves everything, also before collectstatic ran
WHITENOISE_MAX_AGE = 0

# Behind TLS the operator says so; the cookies are then marked for it.
_tls = GATEWAY_URL.startswith("https://")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _tls
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = env_int("MLP_SESSION_S", 14 * 24 * 3600, 60)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _tls else None
SECURE_HSTS_SECONDS = 31536000 if _tls else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = _tls
SECURE_SSL_REDIRECT = False  # nginx or the load balancer in front does that
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Without TLS these three can only be false; the platform then listens on a trusted network, as the README says.
SILENCED_SYSTEM_CHECKS = ["security.W008"] + ([] if _tls else ["security.W004", "security.W012", "security.W016"])
FILE_UPLOAD_TEMP_DIR = None
DATA_UPLOAD_MAX_MEMORY_SIZE = 20 << 20

_mail = urlsplit(env_url("MLP_SMTP_URL", "", ("smtp", "smtps"))) if env("MLP_SMTP_URL") else None
EMAIL_HOST, EMAIL_PORT = (_mail.hostname, _mail.port or (465 if _mail.scheme == "smtps" else 587)) if _mail else ("", 0)
EMAIL_HOST_USER = unquote(_mail.username or "") if _mail else ""
EMAIL_HOST_PASSWORD = unquote(_mail.password or "") if _mail else ""
EMAIL_USE_SSL = bool(_mail and _mail.scheme == "smtps")
EMAIL_USE_TLS = bool(_mail and not EMAIL_USE_SSL and EMAIL_PORT != 25)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env("MLP_MAIL_FROM", "platform@localhost")

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.auth.BearerAuthentication",
        "jobs.auth.JobTokenAuthentication",
        "accounts.auth.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["kernel.rest.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["kernel.rest.PlainJSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "kernel.rest.AlwaysJSON",
    "EXCEPTION_HANDLER": "kernel.errors.exception_handler",
    "DEFAULT_SCHEMA_CLASS": "kernel.schema.ContractSchema",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "ML platform",
    "DESCRIPTION": 'The platform\'s REST interface. Every refusal is `403 {"msg"}`, every fault `503 {"msg"}`.',
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {"ReadyStateEnum": "datasets.models.State"},
    "APPEND_COMPONENTS": {
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "basic": {"type": "http", "scheme": "basic", "description": "username and password: the token call alone"},
            "session": {"type": "apiKey", "in": "cookie", "name": "sessionid"},
        }
    },
}
UNFOLD = admin_theme.UNFOLD

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {
        "handlers": ["stderr"],
        "level": env_choice("MLP_LOG_LEVEL", "INFO", ["DEBUG", "INFO", "WARNING", "ERROR"]),
    },
    "loggers": {
        "django.server": {"level": "WARNING"},
        "django.request": {"level": "ERROR"},
        "daphne.http_protocol": {"level": "WARNING"},
    },
}
TEST_RUN = "PYTEST_VERSION" in os.environ
SITE_TITLE = _("ML platform")
