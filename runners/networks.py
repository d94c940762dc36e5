"""What a run with a network of its own may reach: the platform's endpoints, and the internet by a route or a proxy.

A run has a network namespace of its own wherever the kernel allows it: its loopback interface is its alone, and what it
may reach are listeners there, from which the shim's relay (`shim/relay.py`) connects to the platform. Where slirp4netns
or pasta is installed, it has a route to the internet (`shim/route.py`); else a proxy is one of the listeners. Where
there are no namespaces it has the machine's network.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from kernel.messages import Message

from .base import NETWORK_WORDS, Endpoint, Network, RunSpec
from .confine import FIRST_UID, PROBE_S, SHIM, Confinement
from .shim import landlock

GATEWAY, APP_GATEWAY, NATS, PROXY = "gateway", "app-gateway", "nats", "proxy"
LOOPBACK = "127.0.0.1"
ROUTES = ("slirp4netns", "pasta")  # the first has fewer privileges and takes less memory
PROXIED = ("http_proxy", "https_proxy", "all_proxy")


def endpoints() -> tuple[Endpoint, ...]:
    """Return the endpoints of this platform, and the port of the proxy."""
    host, front = settings.GATEWAY_HOST, settings.GATEWAY_HOST
    to = settings.GATEWAY_PORT, settings.APP_GATEWAY_PORT
    if settings.TLS.cert:  # runs need no certificate: what they send does not leave the machine
        front, to = settings.INTERNAL_HOST, (settings.PLAIN_GATEWAY_PORT, settings.PLAIN_APP_GATEWAY_PORT)
    known = [
        Endpoint(GATEWAY, settings.GATEWAY_PORT, front, to[0]),
        Endpoint(APP_GATEWAY, settings.APP_GATEWAY_PORT, front, to[1]),
    ]
    if settings.EMBEDDED["nats"]:
        known.append(Endpoint(NATS, settings.NATS_PORT, host, settings.NATS_PORT))
    return (*known, Endpoint(PROXY, settings.RUN_PROXY_PORT, "", 0))


def chosen(confinement: Confinement) -> Confinement:
    """Return the isolation with the network that the settings choose. Raises ImproperlyConfigured."""
    if settings.RUN_NETWORK_SHARED:
        return replace(confinement, network="", why_not=(*confinement.why_not, "network: MLP_RUN_NETWORK=shared"))
    if not confinement.network or settings.RUN_NETWORK != "open":
        return confinement
    route, problems = find_route(settings.RUN_INTERNET)
    return replace(confinement, route=route, why_not=(*confinement.why_not, *problems))


@functools.cache
def find_route(wanted: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the program by which runs reach the internet and its path, none for the proxy; and why others do not work
    here.

    Raises ImproperlyConfigured if the program that is required does not work.
    """
    problems = []
    for kind in ROUTES if wanted == "auto" else filter(ROUTES.__contains__, [wanted]):
        path = shutil.which(kind, path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin")
        problem = try_route(kind, path) if path else "not installed"
        if path and not problem:
            return (kind, path), tuple(problems)
        problems.append(f"{kind}: {problem}")
    if wanted in ROUTES:
        raise ImproperlyConfigured(f"MLP_RUN_INTERNET={wanted}: {problems[0]}")
    return (), tuple(problems)


def try_route(kind: str, path: str) -> str:
    """Return why runs cannot reach the internet by this program here, "" where they can."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(SHIM), "route", kind, path],
            capture_output=True, text=True, env={}, timeout=PROBE_S, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as failed:
        return str(failed)
    return (done.stderr.strip()[-300:] or f"exit code {done.returncode}") if done.returncode else ""


def network_of(confinement: Confinement, spec: RunSpec, known: tuple[Endpoint, ...]) -> dict:
    """Return the run's network for the shim."""
    own = confinement.network if spec.owner is not None else ""
    shared = not own and spec.owner is not None
    tcp = _tcp(spec, known) if shared else None
    route = confinement.route if own and spec.network == "open" else ()
    reached = own and spec.network != "none"
    return {
        "policy": spec.network,
        "own": own,
        "uid": FIRST_UID if confinement.own_uid else None,  # nobody's, for the relay
        "route": list(route),
        "endpoints": [_endpoint(endpoint, spec) for endpoint in known if endpoint.host or not route] if reached else [],
        "tcp": tcp,
        "kept": _kept(known) if shared and tcp is None else [],
    }


def _tcp(spec: RunSpec, known: tuple[Endpoint, ...]) -> list[int] | None:
    """Return the ports to which Landlock restricts a run in the machine's network; None where it cannot.

    Several workers need ports that are not known in advance.
    """
    if spec.network == "open" or spec.workers > 1 or landlock.version() < landlock.WITH_TCP:
        return None
    return [] if spec.network == "none" else [port for endpoint in known if endpoint.host for port in _ports(endpoint)]


def _kept(known: tuple[Endpoint, ...]) -> list[int]:
    """Return the ports of the endpoints, on which nobody else may listen while one of their servers is restarted."""
    if landlock.version() < landlock.WITH_TCP:
        return []
    return [endpoint.to for endpoint in known if endpoint.host]


def _ports(endpoint: Endpoint) -> set[int]:
    """Return the ports of an endpoint as users reach it: the gateway may have another in front."""
    url = urlsplit(settings.RUN_GATEWAY_URL if endpoint.name == GATEWAY else "")
    return {endpoint.to, *([url.port or (443 if url.scheme == "https" else 80)] if url.hostname else [])}


def _endpoint(endpoint: Endpoint, spec: RunSpec) -> dict:
    values = {"port": endpoint.port, "host": endpoint.host, "to": endpoint.to}
    if endpoint.name == NATS:
        values["rate"] = [settings.JOB_NATS_BYTES_S, settings.JOB_NATS_MESSAGES_S]
    if endpoint.name != PROXY:
        return values
    return values | {"policy": spec.network, "via": None} | _own_proxy(spec)


def _own_proxy(spec: RunSpec) -> dict:
    """Return where the run's own environment says that its proxy is, which is then reached through ours."""
    for name in (*PROXIED[1::-1], PROXIED[2]):
        given = spec.environment.get(name) or spec.environment.get(name.upper())
        if given:
            try:
                url = urlsplit(given if "://" in given else f"http://{given}")
                if url.scheme == "http" and url.hostname:
                    login = f"{url.netloc.rpartition('@')[0]}@" if "@" in url.netloc else ""
                    return {"via": [url.hostname, url.port or 80], "login": login}
            except ValueError:
                continue
    return {}


RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")
TORCHRUN = (*RENDEZVOUS, "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def environment(given: dict[str, str], network: dict) -> dict[str, str]:
    """Return the variables with those by which programs find the proxy, where there is one; without those of torchrun
    where the run cannot listen on a port.
    """
    if network["tcp"] is not None:
        given = {name: value for name, value in given.items() if name not in TORCHRUN}
    return given | _proxy(network)


def _proxy(network: dict) -> dict[str, str]:
    proxy = next((endpoint for endpoint in network["endpoints"] if not endpoint["host"]), None)
    if proxy is None:
        return {}
    url = f"http://{proxy.get('login', '')}{LOOPBACK}:{proxy['port']}"
    values = dict.fromkeys(PROXIED, url) | {"no_proxy": f"localhost,{LOOPBACK},::1"}
    return values | {name.upper(): value for name, value in values.items()}


def words(confinement: Confinement, policy: Network) -> Message:
    """Return what a policy means for runs here."""
    if confinement.network and policy == "open" and not confinement.route:
        return Message("the platform, and the internet through an HTTP proxy")
    if confinement.network:
        return NETWORK_WORDS[policy]
    if policy != "open" and landlock.version() >= landlock.WITH_TCP:
        return Message(
            "%(policy)s (TCP of single workers only: runs share the network of this machine)",
            policy=NETWORK_WORDS[policy],
        )
    return Message("%(policy)s (not enforced: runs share the network of this machine)", policy=NETWORK_WORDS[policy])
