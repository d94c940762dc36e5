"""Fixtures for every test: three users (owner, stranger, operator), their tokens, and the state of the real servers.

The servers themselves (PostgreSQL, Valkey, NATS) are started once for the whole run by mlp/tests/servers.py.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import dramatiq
import hypothesis
import pytest
from _pytest import runner
from channels.layers import channel_layers
from django.conf import settings
from django.db import connection, transaction
from django.test import Client, TransactionTestCase, override_settings
from django.test.client import ClientHandler

import mlp.worker  # noqa: F401 (registers every actor)
from accounts import lifecycle as accounts
from accounts.models import User
from apps.models import PORTS
from kernel import broker as kernel_broker
from kernel import storage
from mlp.tests import chromium, handlers, servers, template
from mlp.tests.attacks import is_attack
from mlp.tests.emptying import empty_database
from mlp.tests.forgetting import forget
from mlp.tests.frames import with_room
from mlp.tests.patience import rest
from mlp.tests.slow import is_slow
from resources.models import Tenant

pytest_plugins = ["supervision.tests.shared"]

PASSWORD = "correct horse battery"
QUICK_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
FILLED = ("datasets", "code", "jobs", "models", "apps", "workspaces", "run/runs", "run/datasets")
ACTORS = kernel_broker.broker().actors

# What is tried with many examples is tried for what it answers; how fast a busy machine is says nothing about it.
hypothesis.settings.register_profile(
    "suite", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("suite")

TransactionTestCase._fixture_teardown = empty_database
TransactionTestCase._should_reload_connections = lambda self: False  # what would be wrong with it, see emptying.py
settings.WHITENOISE_AUTOREFRESH = True  # else each test's first request lists all static files


ALL_LONG = re.compile(r"^pytestmark = .*\bpytest\.mark\.long\b", re.MULTILINE)


def pytest_ignore_collect(collection_path, config):
    """Do not even load files that are not asked for: the long ones, the slow ones, or all but the attacks."""
    path, wanted = collection_path.relative_to(config.rootpath).as_posix(), config.option.markexpr
    if "not slow" in wanted and is_slow(path):
        return True
    if "not long" in wanted and collection_path.suffix == ".py" and ALL_LONG.search(collection_path.read_text()):
        return True
    if wanted == "attack" and collection_path.name.startswith("test_") and not is_attack(path):
        return True
    return None  # let pytest decide


def load(config) -> None:
    """Load the test files in an order of this worker's own, each beginning with another part of them: in a new clone
    each worker compiles that part, and the others find it compiled, instead of all compiling all of them.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker:
        return
    ignored = {config.rootpath / path for path in config.getoption("ignore") or ()}
    places = [path for argument in config.args if (path := config.rootpath / argument).is_dir()]
    paths = [path for place in places for path in sorted(place.rglob("test_*.py"))]
    files = [path for path in paths if path not in ignored and not pytest_ignore_collect(path, config)]
    begin = len(files) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in files[begin:] + files[:begin]:
        with suppress(Exception, pytest.skip.Exception):  # pytest will say what is wrong with it
            importlib.import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


@pytest.hookimpl(hookwrapper=True)
def pytest_collection(session):
    """Load the tests without the garbage collector's rounds, and leave what was loaded out of all later ones. These are
    rarer than usual: they took a tenth of the tests' processor time.
    """
    gc.disable()
    load(session.config)
    yield
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Run a test as pytest does, with room for the calls of Django below those of pytest."""
    return with_room(runner.pytest_runtest_protocol, item, nextitem)


@pytest.hookimpl(trylast=True)  # after the order was made random, where that is asked for
def pytest_collection_modifyitems(items):
    """Mark the slow files and the attacks, and start those that take minutes early: no worker is idle at the end."""
    for item in items:
        if is_slow(item.location[0]):
            item.add_marker("slow")
        if is_attack(item.location[0]):
            item.add_marker("attack")
    order = {item: place / len(items) for place, item in enumerate(items)}
    for item in items:
        if mark := item.get_closest_marker("begins"):
            order[item] = mark.args[0]
    items.sort(key=order.get)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix, django_db_blocker):
    """Each process's database is a copy of one that is migrated once, by whichever process is first."""
    if servers.ours():  # on a server that was given, the next run would find what this one has left
        with django_db_blocker.unblock():
            connection.settings_dict["TEST"]["TEMPLATE"] = template.make()


@pytest.fixture(scope="session", autouse=True)
def one_chain_of_middleware():
    handlers.build()
    ClientHandler.load_middleware = handlers.load_middleware


@pytest.fixture(autouse=True)
def clean_world(request):
    """Start each test with empty storage, an empty Valkey and no memories; pytest-django handles the database."""
    if "e2e" not in request.keywords:
        for folder in FILLED:
            if os.path.lexists(path := f"{storage.root()}/{folder}"):
                shutil.rmtree(path, ignore_errors=True)
        forget()
        # A receiver that is cancelled as its loop ends may leave a lock of the layer locked, for all later loops.
        channel_layers.backends.clear()
        kernel_broker.broker().client.flushdb()  # queue, channel layer and cache


@pytest.fixture(autouse=True)
def ports_of_this_worker(monkeypatch):
    """Give parallel workers separate ranges for the ports of applications."""
    first = PORTS.start + 200 * servers.slot()
    monkeypatch.setattr("apps.ports.PORTS", range(first, first + 200))


@pytest.fixture(autouse=True)
def quick_passwords(settings):
    """Use a fast hasher: the real one is slow on purpose, and is not under test."""
    settings.PASSWORD_HASHERS = QUICK_HASHERS


@pytest.fixture(autouse=True)
def tenant_size(request):
    """Give the default tenant a fixed capacity, whatever the machine."""
    if "db" in request.fixturenames or "transactional_db" in request.fixturenames:
        request.getfixturevalue("default_tenant")


def put_default_tenant() -> Tenant:
    size = {"cpu": 8, "gpu": 2, "ram": 16000, "rom": 10 << 30}
    rows = [Tenant(name="default", **size)]
    Tenant.objects.bulk_create(rows, update_conflicts=True, unique_fields=["name"], update_fields=list(size))
    return rows[0]


def add_user(username: str, **options):
    return accounts.register(username=username, password=PASSWORD, by="test", **options)


@pytest.fixture
def default_tenant(db):
    return put_default_tenant()


@pytest.fixture
def make_user(default_tenant):
    return add_user


@pytest.fixture(scope="module")
def keep(django_db_setup, django_db_blocker):
    """Return a function that makes what all tests of a file find as it was made: rows, of alice among others. It calls
    what it is given with alice, and returns the result.

    One transaction is around all of these tests, and each has a savepoint in it; so none has transactions of its own.
    """
    around = transaction.atomic()

    def make(world):
        with django_db_blocker.unblock(), override_settings(PASSWORD_HASHERS=QUICK_HASHERS):
            around.__enter__()
            put_default_tenant()
            return world(add_user("alice"))

    yield make
    with django_db_blocker.unblock():
        transaction.set_rollback(True)
        around.__exit__(None, None, None)


def move(user, tenant) -> None:
    """Let the user be in that tenant only, as a member."""
    user.memberships.all().delete()
    user.memberships.create(tenant=tenant)
    type(user).objects.filter(pk=user.pk).update(tenant=tenant)
    user.tenant = tenant


@pytest.fixture
def alice(make_user):
    """The owner of the objects in most tests."""
    return User.objects.filter(username="alice").first() or make_user("alice")


@pytest.fixture
def bob(make_user):
    """Another user, who owns none of them."""
    return make_user("bob")


@pytest.fixture
def staff(make_user):
    """An operator."""
    return make_user("oscar", is_staff=True)


class Api(Client):
    """A REST client with a bearer token; bodies are JSON."""

    def __init__(self, token: str | None = None):
        super().__init__(raise_request_exception=False)
        self.token = token

    def call(self, method: str, path: str, body=None, **headers):
        if self.token:
            headers.setdefault("HTTP_AUTHORIZATION", f"Bearer {self.token}")
        options = {} if body is None else {"data": body, "content_type": "application/json"}
        return getattr(super(), method)(f"/api/v1/{path}", **options, **headers)

    def refused(self, method: str, path: str, body=None, **headers) -> str:
        """Return the message of a call that must be refused in the contract's form."""
        response = self.call(method, path, body, **headers)
        assert response.status_code == 403, (response.status_code, response.content)
        assert set(response.json()) == {"msg"}
        assert response.json()["msg"]
        return response.json()["msg"]


@pytest.fixture
def api():
    return Api


@pytest.fixture
def as_anonymous():
    """A REST client without a token."""
    return Api()


@pytest.fixture
def as_alice(alice):
    return Api(accounts.token_of(alice))


@pytest.fixture
def as_bob(bob):
    return Api(accounts.token_of(bob))


@pytest.fixture
def as_staff(staff):
    return Api(accounts.token_of(staff))


@pytest.fixture
def staff_client(client, staff):
    client.force_login(staff)
    return client


@pytest.fixture
def home(alice) -> Path:
    """Alice's `.home` with one script, `train.py`."""
    folder = storage.home_dir("alice")
    (folder / "train.py").write_text("print('hello')\n")
    return folder


LOOK_AGAIN_S = 0.1


class Tasks:
    """Runs enqueued messages in this thread, in order: `run()` until none is left; `taken` records them. What an actor
    sends itself for later, to look at a run again, comes once a run has ended or a moment has passed.
    """

    def __init__(self):
        self.queue: list[dramatiq.Message] = []
        self.taken: list[tuple[str, tuple]] = []
        self.delayed: dict[str, int] = {}  # ms by message_id

    def enqueue(self, message: dramatiq.Message, delay: int | None = None) -> None:
        assert message.actor_name in ACTORS, f"no actor is called {message.actor_name}"
        assert ACTORS[message.actor_name].queue_name == message.queue_name
        self.queue.append(message)
        if delay:
            self.delayed[message.message_id] = delay

    def run_once(self) -> None:
        """Deliver the messages that are enqueued now; those that they enqueue wait for the next call."""
        now, self.queue = self.queue, []
        for message in now:
            self.taken.append((message.actor_name, tuple(message.args)))
            ACTORS[message.actor_name].fn(*message.args)

    def waiting_after(self, reconcile, rounds: int = 6) -> list[int]:
        """Return how many messages are queued after each round of the workers and of reconcile."""
        sizes = []
        for _ in range(rounds):
            self.run_once()
            reconcile()
            sizes.append(len(self.queue))
        return sizes

    def run(self, times: int = 1) -> None:
        """Deliver all messages, each `times` times: a queue may deliver twice."""
        while self.queue:
            message = self.queue.pop(0)
            if message.message_id in self.delayed and not self.queue:
                rest(LOOK_AGAIN_S)
            self.taken.append((message.actor_name, tuple(message.args)))
            for _ in range(times):
                ACTORS[message.actor_name].fn(*message.args)


@pytest.fixture
def tasks(monkeypatch, transactional_db):
    """The task queue in memory. Transactions are real, so messages are enqueued at the commit."""
    queue = Tasks()
    real = kernel_broker.broker()
    monkeypatch.setattr(
        "kernel.after_commit.broker", lambda: SimpleNamespace(enqueue=queue.enqueue, client=real.client)
    )
    return queue


@pytest.fixture(scope="session")
def browser_type_launch_args():
    """Use Debian's Chromium, also as root."""
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    return {"executable_path": chromium.program(), "headless": True, "args": flags}


assert Path(settings.BASE_DIR) / "var" != settings.MLP_ROOT, "the tests must not run on the platform's own data"
