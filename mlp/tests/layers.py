"""The layers of the code base as data: who may import whom.

test_architecture.py checks them; tools/architecture.py writes the table in docs/architecture.md from them.
"""

from __future__ import annotations

from typing import NamedTuple


class Level(NamedTuple):
    """A rank of packages: each may import the levels below it, none its own level or above."""

    number: int
    packages: tuple[str, ...]
    says: str


LEVELS = (
    Level(0, ("kernel.environment", "mlp.operators.admin_theme"), "what settings need before Django is set up"),
    Level(0, ("opnilog",), "the model of log lines, without Django"),
    Level(0, ("client",), "the command line client, which imports nothing of the platform"),
    Level(1, ("kernel",), "errors, names, locks, history, the bus, storage; imports no app"),
    Level(2, ("runners",), "processes and pods; how a row owns a run"),
    Level(2, ("snapshots",), "content-addressed snapshots of folders; knows no table"),
    Level(3, ("accounts", "resources"), "users and tokens; tenants and try-confirm-cancel"),
    Level(4, ("datasets",), "datasets, the WebDAV data service, the data client"),
    Level(5, ("jobs",), "jobs: the queue, their runs, logs, outputs and diagnoses"),
    Level(6, ("mlflow_protocol",), "what both halves of the MLflow protocol share"),
    Level(
        7, ("tracking",), "what jobs report: metrics, media, tables of runs, projects, comparisons, MLflow's tracking"
    ),
    Level(8, ("models_app",), "models"),
    Level(9, ("apps",), "applications and the process that serves them"),
    Level(10, ("workspaces",), "workspaces: JupyterLab beside a user's data, at an origin of its own"),
    Level(10, ("aiops",), "log anomaly detection; imports levels 0 to 3 only"),
    Level(11, ("automation",), "sweeps, schedules and pipelines: what submits jobs by itself"),
    Level(12, ("supervision",), "`make up`: processes, embedded servers, nginx, health"),
    Level(13, ("operations",), "backups, `manage.py doctor`, `/metrics`: what looks at all of the platform"),
    Level(14, ("mlp",), "the wiring: settings, URLs, administrators' and visitors' pages; imported by none"),
)
AIOPS_MAY = {0, 1, 2, 3}

# Folders inside an app: each may import those before it, and its own files.
ROOMS = {
    "accounts": ("models", "auth", "notices", "tenancy", "sharing", "signin"),
    "aiops": ("models", "wire", "logstore", "judging", "lifecycle", "intake", "training", "services", "web"),
    "models_app": (
        "models",
        "choosing",
        "embedding",
        "gguf",
        "hugging_face",
        "loading",
        "mlmodel",
        "pyfunc",
        "external",
        "sources",
        "packages",
        "lineage",
        "lifecycle",
        "fetched",
        "launching",
        "serializers",
        "pages",
        "registry",
        "mlflow",
        "transfer",
    ),
    "jobs": (
        "models",
        "summaries",
        "code",
        "packages",
        "notebooks",
        "artifacts",
        "queue",
        "lifecycle",
        "serializers",
        "logs",
        "log",
        "doctor",
    ),
    "apps": ("models", "serving", "records", "shadows", "drift", "batch"),
    "tracking": ("metrics", "runs", "mlflow", "traces", "evaluations", "media", "compare"),
    "automation": ("models", "spec", "first_values", "sweeps", "pipelines", "schedules"),
}

# Files of an app, lowest first. A file name that is not listed here is refused, so that a newcomer knows each of them.
FILES = (
    {"models", "policies"},
    {"checks", "loading", "mlmodel", "packages", "ports", "proof", "sources", "units", "rows", "spec"}
    | {"choosing", "embedding", "external", "gguf", "hugging_face", "lineage", "pyfunc"}
    | {"admission_hooks", "claims", "home", "litter", "runs", "uses", "versions", "request_limits", "demand"}
    | {"reported_metrics", "keys", "token_limits", "callers", "policy", "addresses", "entering"},
    {"auth", "tokens", "throttle", "devices", "logins", "environment", "lifecycle", "launching", "notices", "sessions"}
    | {
        "tcc",
        "place",
        "notebooks",
        "guests",
        "inventory",
        "products",
        "work",
        "tenants",
        "lending",
        "limits",
        "replicas",
        "replica_range",
        "approvals",
        "canaries",
        "request_rates",
        "rollouts",
        "scaling",
        "second_launching",
        "second_runs",
        "sleeping",
        "slots",
        "switching",
        "usage",
        "books",
        "progress_bar",
    }
    | {"trash", "sizes", "retention", "publishing", "copies", "fetched"}
    | {
        "bulk",
        "client_runs",
        "first_values",
        "form_values",
        "idle",
        "nesting",
        "preemption",
        "queueing",
        "reports",
        "states",
        "tracker",
    }
    | {"scopes", "named_tokens", "program_logins", "service_accounts"},
    {"serializers", "shown", "tenant_forms", "playground", "folders", "logs", "delivery", "frame"}
    | {"processes", "attach", "chat_stream", "key_tokens"},
    {
        "api",
        "pages",
        "submit_form",
        "file_pages",
        "script_pages",
        "settings_pages",
        "program_pages",
        "token_pages",
        "approval_api",
        "key_api",
        "guest_api",
        "guest_pages",
        "key_pages",
        "service_api",
        "service_pages",
        "notice_admin",
        "balancing",
        "gateway_access",
        "places",
        "gateway",
        "routing",
        "upstreams",
        "orphans",
        "admin",
        "actors",
        "consumers",
    }
    | {"reconcile", "client_build"},
    {"urls", "data_urls", "gateway_urls", "page_urls"},
)
APP_FILES = {name for layer in FILES for name in layer} | {"apps", "__init__"}
APPS = (
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
)


def level_of(module: str) -> int:
    """Return the number of the module's level; the highest for files at the root."""
    known = {package: level.number for level in LEVELS for package in level.packages}
    matches = [package for package in known if module == package or module.startswith(package + ".")]
    return known[max(matches, key=len)] if matches else LEVELS[-1].number


def table() -> str:
    """Return the levels as the Markdown table of docs/architecture.md, highest first."""
    rows = ["| level | packages | what they hold |", "|---|---|---|"]
    for level in sorted(LEVELS, reverse=True):
        rows.append(f"| {level.number} | {', '.join(f'`{name}`' for name in level.packages)} | {level.says} |")
    return "\n".join(rows)
