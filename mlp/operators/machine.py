"""System information for administrators: component versions, the machine's hardware, and the isolation of runs.

The overview fetches it in a separate request, since it may be slow: servers report their versions, and the first call
probes which isolation works on this machine (runners.confine).
"""

from __future__ import annotations

import importlib.metadata
import logging
import platform
from collections.abc import Callable

import django
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

import runners
from kernel import broker, bus
from mlp.operators.operator_logs import operators_only
from resources import inventory
from resources.shown import amount
from runners import gpus
from runners.shim import cgroup
from supervision import programs

log = logging.getLogger(__name__)

ASK_S = 2
LIBRARIES = ("Channels", "Daphne", "Dramatiq", "gunicorn")
BY_CGROUP = {"memory": _("memory"), "pids": _("processes"), "cpu": _("CPU")}


def machine(request: HttpRequest) -> HttpResponse:
    operators_only(request)
    context = {"versions": versions(), "machine": hardware(), "isolation": isolation()}
    return render(request, "admin/dashboard/machine.html", context)


# --- isolation of runs ----------------------------------------------------------------------------------------------
def isolation() -> dict:
    """Return {"rows": [(what, how, tone)], "why_not": [a stronger isolation and why it is not used]}."""
    if settings.MLP_RUNNER != "local":
        how = gettext("pods of the cluster, namespace %s") % settings.MLP_K8S["namespace"]
        return {"rows": [(gettext("Runs"), how, "success")], "why_not": []}
    confinement = runners.get().confinement
    files = {
        "bwrap": (gettext("each run sees its own files only (bubblewrap)"), "success"),
        "landlock": (gettext("each run may open its own files only (Landlock)"), "success"),
        "none": (gettext("no isolation: a script can read what the platform can"), "danger"),
    }
    users = (gettext("each owner's runs have a separate user"), "success")
    if not confinement.own_uid:
        users = (gettext("all runs use the platform's user"), "warning" if confinement.isolation == "none" else "plain")
    network = (gettext("each run has a network of its own"), "success")
    internet = gettext("under the policy open through an HTTP proxy")
    if confinement.route:
        internet = gettext("under the policy open by %s") % confinement.route[0]
    if not confinement.network:
        network, internet = (
            (gettext("shared: a run can reach what the machine can, and listen on its ports"), "danger"),
            "",
        )
    rows = [
        (gettext("Files"), *files[confinement.isolation]),
        (gettext("Network"), *network),
        *([(gettext("Internet"), internet, "plain")] if internet else []),
        (gettext("Users"), *users),
    ]
    for kind in cgroup.KINDS:
        limited = kind in confinement.cgroup
        how = gettext("limited by control groups") if limited else gettext("measured by the monitor")
        rows.append((str(BY_CGROUP.get(kind, kind)), how, "success" if limited else "plain"))
    rows.append((gettext("disk"), gettext("measured by the monitor"), "plain"))
    return {"rows": rows, "why_not": list(confinement.why_not)}


def hardware() -> list[tuple[str, str]]:
    devices = gpus.devices()
    cards = [f"{device.name}, {amount('ram', device.memory_mib)}" for device in devices]
    counted = [f"{cards.count(card)} × {card}" for card in dict.fromkeys(cards)]
    return [
        (gettext("CPUs"), f"{inventory.cpus().normalize():f}"),
        (gettext("Memory"), amount("ram", inventory.ram_mib())),
        (
            gettext("GPUs"),
            "; ".join(counted) or gettext("none"),
        ),
        (gettext("Operating system"), f"{platform.system()} {platform.release()}, {platform.machine()}"),
        (gettext("Runner"), settings.MLP_RUNNER),
        (gettext("Storage root"), str(settings.MLP_ROOT)),
    ]


# --- versions -------------------------------------------------------------------------------------------------------
def versions() -> list[tuple[str, str]]:
    """Return (name, version) of the servers and libraries; "" for one whose version is not available."""
    postgres = connection.pg_version
    rows = [
        ("Python", platform.python_version()),
        ("Django", django.get_version()),
        ("PostgreSQL", f"{postgres // 10000}.{postgres % 10000}"),
        ("Valkey", _version_or_empty("valkey", valkey)),
        ("NATS", _version_or_empty("nats", nats)),
        ("nginx", programs.nginx_version()),
        *((name, _library(name.lower())) for name in LIBRARIES),
        ("PyTorch", _library("torch")),
    ]
    bubblewrap = programs.bubblewrap_version()
    return rows + ([("bubblewrap", bubblewrap)] if bubblewrap else [])


def valkey() -> str:
    info = broker.broker().client.info("server")
    return str(info.get("valkey_version") or info.get("redis_version", ""))


def nats() -> str:
    async def work(client: bus.Client) -> str:
        version = client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    return bus.call(work, ASK_S)


def _version_or_empty(name: str, query: Callable[[], str]) -> str:
    try:
        return query()
    except Exception as problem:  # of any kind: the other versions are still shown
        log.info("the version of %s is not available: %s", name, problem)
        return ""


def _library(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
