"""The settings of Django that no environment variable changes, used by settings.py."""

from __future__ import annotations

from pathlib import Path

from mlp import static_files

BASE_DIR = Path(__file__).resolve().parent.parent

INSTALLED_APPS = [
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
    "tracking",
    "models_app",
    "apps",
    "workspaces",
    "aiops",
    "automation",
]
MIDDLEWARE = [
    "kernel.telemetry.meters.CountRequests",
    "kernel.telemetry.tracing.TraceRequests",  # where traces are on
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "kernel.middleware.ContentSecurityPolicy",
    "kernel.middleware.ApiErrors",  # inside of those whose headers its answers need, too
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "accounts.signin.middleware.RequireSecondFactor",
    "mlp.visitors.disk_gate.DiskGate",
    "kernel.streams.BoundStreams",
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

PASSWORD_RESET_TIMEOUT = 3600

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = f"/static/{static_files.version()}/"
WHITENOISE_USE_FINDERS = True  # so that Daphne alone serves all files, even before collectstatic has run
WHITENOISE_IMMUTABLE_FILE_TEST = "^"  # all of them
