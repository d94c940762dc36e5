"""`/healthz`: whether every part works. Asked by people, load balancers, `up` and the operators' dashboard.

Each check tests the work, not the process: a query, a ping, an answered request, a recent heartbeat. All run at once
with a limit of LIMIT_S each; what takes longer counts as failing. The result is kept for a second, so that frequent
requests cost nothing. The parts without a port are known by their heartbeats, which are kept in Valkey: while that
fails, they are `unknown`, and do not count as failing.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from functools import cache

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from redis.exceptions import RedisError

import runners
from kernel import broker, bus, heartbeats
from kernel.errors import Fault
from kernel.sockets import Address, HttpConnection

log = logging.getLogger(__name__)

LIMIT_S = 2.0
KEEP_S = 1.0
BEAT_LIMIT_S = 15
UNKNOWN = "unknown: Valkey, which keeps the heartbeats, fails"
BEATING = ("worker", "worker-gpu", "ingest", "reconcile", "aiops", *(("kafka",) if settings.KAFKA_URL else ()))


def healthz(request: HttpRequest) -> HttpResponse:
    parts = report()
    failing = [name for name, state in parts.items() if state not in {"ok", UNKNOWN}]
    body = {"status": "failing", "parts": parts, "failing": failing} if failing else {"status": "ok", "parts": parts}
    response = JsonResponse(body, status=503 if failing else 200, headers={"Cache-Control": "no-store"})
    response._has_been_logged = True  # Django would log every 503; `report` logs changes only
    return response


def ready(request: HttpRequest) -> HttpResponse:
    """Answer whether this process can answer requests: with the database and Valkey, whatever the other parts do."""
    states = ask({"database": check_database, "valkey": lambda: broker.broker().client.ping()})
    failing = [f"{name}: {state}" for name, state in states.items() if state != "ok"]
    text = "\n".join(failing or ["ok"]) + "\n"
    headers = {"Cache-Control": "no-store"}
    response = HttpResponse(text, status=503 if failing else 200, content_type="text/plain", headers=headers)
    response._has_been_logged = True
    return response


def live(request: HttpRequest) -> HttpResponse:
    """Answer that this process runs, without checking anything else."""
    return HttpResponse("ok\n", content_type="text/plain", headers={"Cache-Control": "no-store"})


# --- the report ----------------------------------------------------------------------------------------------------
_lock = threading.Lock()
_last: tuple[float, dict[str, str]] = (float("-inf"), {})


def report() -> dict[str, str]:
    """Return part name -> "ok" or a description of the problem. At most a second old."""
    global _last
    with _lock:
        if time.monotonic() - _last[0] > KEEP_S:
            results = ask(checks())
            for name in results:
                if results[name] != _last[1].get(name, "ok"):
                    log.warning("%s: %s", name, results[name])
            _last = (time.monotonic(), results)
        return dict(_last[1])


def checks() -> dict[str, Callable[[], None]]:
    """Return part name -> a function that raises when the part does not work."""
    return {
        "database": check_database,
        "valkey": lambda: broker.broker().client.ping(),
        "nats": bus.check,
        "web": lambda: None,  # it is answering this request
        "websockets": lambda: answers(settings.WEBSOCKET_ADDRESS, "/healthz/live"),
        "data": lambda: answers(settings.DATA_ADDRESS, "/healthz/live"),
        **{name: lambda name=name: check_beat(name) for name in BEATING},
        **({"cluster": check_cluster} if settings.MLP_RUNNER == "kubernetes" else {}),
        "gateway": check_gateway,
        "app-gateway": check_app_gateway,
    }


def ask(questions: dict[str, Callable[[], None]]) -> dict[str, str]:
    """Run all checks at once; one that has not finished in time is left running in its thread."""
    results: dict[str, str] = {}

    def run_check(name: str, check: Callable[[], None]) -> None:
        try:
            check()
            results[name] = "ok"
        except Exception as problem:  # any kind of failure is reported
            results[name] = words(problem)

    threads = [threading.Thread(target=run_check, args=pair, daemon=True) for pair in questions.items()]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LIMIT_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    states = {name: results.get(name, f"no answer within {LIMIT_S:g} s") for name in questions}
    if states.get("valkey", "ok") != "ok":
        states |= dict.fromkeys(states.keys() & set(BEATING), UNKNOWN)
    return states


def words(problem: Exception) -> str:
    """Return the problem as one line. Details stay in the logs."""
    if isinstance(problem, Fault | Unwell):
        return str(problem.args[0]) if problem.args else "fault"
    if isinstance(problem, OSError | RedisError):
        return f"does not answer ({type(problem).__name__})"
    return f"{type(problem).__name__}: {str(problem).strip().splitlines()[0][:150] if str(problem).strip() else ''}"


class Unwell(Exception):
    """A part answers but does not work; the message says what is wrong."""


@cache
def unverified() -> ssl.SSLContext:
    """Return what accepts the certificate of our own gateway, whatever its names and its authority are."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


# --- the checks ----------------------------------------------------------------------------------------------------
def check_database() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        connection.close()  # this thread's connection, which nothing else closes


def check_beat(part: str) -> None:
    age = heartbeats.age(part)
    if age is None:
        raise Unwell("no heartbeat")
    if age >= BEAT_LIMIT_S:
        raise Unwell(f"no heartbeat for {age:.0f} s")


def check_cluster() -> None:
    """Ask the API server for its version: while it is unavailable no run starts, and none is seen to end."""
    try:
        runners.get().reach(LIMIT_S)
    except runners.RunnerError as problem:
        raise Unwell(str(problem.msg)) from problem


def check_gateway() -> None:
    own = (gateway_host(), settings.GATEWAY_PORT)
    answers(settings.PART_ADDRESS["gateway"] or own, "/healthz/nginx", tls=bool(settings.TLS.cert))


def check_app_gateway() -> None:
    own = (gateway_host(), settings.APP_GATEWAY_PORT)
    answers(settings.PART_ADDRESS["app-gateway"] or own, "/healthz/nginx", tls=bool(settings.TLS.cert))


def gateway_host() -> str:
    """Return the host by which the gateways are reached from this machine."""
    return settings.INTERNAL_HOST if settings.MLP_HOST in {"0.0.0.0", "::"} else settings.MLP_HOST


def plain_gateway() -> tuple[str, int]:
    """Return where the gateway takes plain HTTP: its port, or under TLS the one for this machine's jobs."""
    if settings.TLS.cert:
        return settings.INTERNAL_HOST, settings.PLAIN_GATEWAY_PORT
    return gateway_host(), settings.GATEWAY_PORT


def answers(address: Address, path: str, tls: bool = False) -> None:
    """Raise unless there is an answer. A 400 counts: ALLOWED_HOSTS need not contain the internal addresses."""
    status, _ = get(address, path, tls=tls)
    if status not in {200, 400}:
        raise Unwell(f"answers {status}")


def get(address: Address, path: str, timeout_s: float = LIMIT_S, tls: bool = False) -> tuple[int, bytes]:
    """Make a GET, with a Host header that ALLOWED_HOSTS accepts where possible. Under TLS any certificate will do:
    whether it is the right one is a question for its users.
    """
    allowed = [name for name in settings.ALLOWED_HOSTS if name != "*"]
    link = HttpConnection(address, timeout_s, unverified() if tls else None)
    try:
        link.request("GET", path, headers={"Host": allowed[0].lstrip(".")} if allowed else {})
        answer = link.getresponse()
        return answer.status, answer.read()
    except TimeoutError as problem:
        raise Unwell(f"no answer within {timeout_s:g} s") from problem
    finally:
        link.close()
