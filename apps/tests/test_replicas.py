"""Several runs of one application: who gets a request, how many there are, and what a crash, a move and sleep do."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import requests

import runners
from apps import demand, launching, proof, scaling
from apps.models import Application, AppRun, Replica
from kernel import outbound, sockets, storage
from mlp.tests.page_world import visible_text
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later
from resources.models import ResourceRequest, Tenant

from .conftest import NAMES, bearer_of
from .test_apps import process_of

pytestmark = pytest.mark.django_db(transaction=True)

# Answers with a number of its own and a constant; the input 1 waits until the file `go` is in the application's folder,
# and 2 ends the process.
HOLDING = """
import os, secrets, time
PLACE = os.path.dirname(os.environ["MLP_TRAFFIC"])
OWN = secrets.randbelow(1 << 40)

class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    concurrency = 64

    def predict(self, inputs):
        (x,) = inputs
        if x["data"][0] == 2:
            os._exit(1)
        while x["data"][0] == 1 and not os.path.exists(PLACE + "/go"):
            time.sleep(0.01)
        return [{"name": "y", "datatype": "FP64", "shape": [2], "data": [OWN, ADDED]}]
"""
PASS, HOLD, KILL = 0, 1, 2


@pytest.fixture
def holding(adder):
    """The model adder as one whose processes answer with a number of their own, and that can be made to wait."""
    (storage.model_dir("alice", "adder") / "predictor.py").write_text(HOLDING.replace("ADDED", "0"))


class Calls:
    """Requests to one application through its gateway, in threads."""

    def __init__(self, front: str, app: Application, headers: dict, pool: ThreadPoolExecutor):
        self.url, self.headers, self.pool, self.app = f"{front}/alice/{app.name}/predict", headers, pool, app

    def now(self, x: int = PASS) -> tuple[int, list[float]]:
        """Return the status and the answer: the number of the process and a constant."""
        answer = requests.post(self.url, json={"x": [x]}, headers=self.headers, timeout=LIMIT_S)
        return answer.status_code, answer.json().get("y", answer.json())

    def later(self, x: int = HOLD) -> Future:
        return self.pool.submit(self.now, x)

    def go(self) -> None:
        """Let the requests that are held be answered."""
        (launching.folder(self.app) / "go").touch()


@pytest.fixture
def calls(front, alice):
    """Return a function that makes Calls of an application; all are answered at the end."""
    made: list[Calls] = []
    pool = ThreadPoolExecutor(128)

    def make(app: Application) -> Calls:
        made.append(Calls(front, app, bearer_of(alice), pool))
        return made[-1]

    yield make
    for one in made:
        if launching.folder(one.app).exists():
            one.go()
    pool.shutdown()


@pytest.fixture
def serve(deploy, holding, until):
    """Return a function that deploys an application and waits until it has so many runs."""

    def start(count: int, **numbers: int) -> Application:
        app = deploy(next(NAMES), replicas=numbers)
        until(lambda: count_of(app) == count)
        app.refresh_from_db()
        return app

    return start


def count_of(app: Application) -> int:
    return Application.objects.get(pk=app.pk).counts.ready


def in_work(app: Application) -> list[int]:
    """Return how many requests each run of the application has, its own run first."""
    app = Application.objects.get(pk=app.pk)
    runs = [(app.run_name, app.address), *app.replicas.order_by("pk").values_list("run_name", "address")]
    return [load_of(name, address) for name, address in runs if address]


def load_of(run_name: str, address: str) -> int:
    status, body = outbound.exchange(
        sockets.parse(address), "GET", proof.LOAD, headers=proof.headers(run_name), limit_s=LIMIT_S, most=100
    )
    assert status == 200
    return int(body.split()[0])


def held_resources() -> float:
    return float(Tenant.objects.get(name="default").cpu_inuse)


@pytest.mark.long
def test_a_request_goes_to_the_replica_with_least_in_work(serve, calls, until):
    app = serve(2, min=2, max=2, target=1)
    ask = calls(app)
    first = ask.later()
    until(lambda: sum(in_work(app)) == 1)
    status, (other, _constant) = ask.now()  # while one of the two is held
    assert status == 200
    second = ask.later()
    until(lambda: in_work(app) == [1, 1])
    third = ask.later(PASS)  # waits, since each replica has as many as the owner allows
    until(lambda: demand.read(app.pk)[0] == 3)
    assert not third.done()
    ask.go()
    answers = [future.result(LIMIT_S) for future in (first, second, third)]
    assert {status for status, _answer in answers} == {200}
    assert answers[0][1][0] != other
    assert {answers[0][1][0], answers[1][1][0]} == {answers[0][1][0], other}


@pytest.mark.long
def test_more_than_the_queue_holds_is_refused(serve, calls, until):
    app = serve(1, min=1, max=1, target=1)
    ask = calls(app)
    held = [ask.later()]
    until(lambda: in_work(app) == [1])
    held += [ask.later(PASS) for _number in range(100)]
    until(lambda: demand.read(app.pk)[0] == 101)
    answer = requests.post(ask.url, json={"x": [0]}, headers=ask.headers, timeout=LIMIT_S)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    assert "Too many requests" in answer.json()["error"]
    ask.go()
    assert {future.result(LIMIT_S)[0] for future in held} == {200}


def test_replicas_come_and_go_with_the_requests_in_work(serve, calls, until, settings):
    app = serve(1, max=3, target=1)
    assert held_resources() == pytest.approx(0.1)
    ask = calls(app)
    held = [ask.later() for _number in range(3)]
    until(lambda: count_of(app) == 3)
    until(lambda: in_work(app) == [1, 1, 1])
    assert held_resources() == pytest.approx(0.3)
    ask.go()
    assert len({future.result(LIMIT_S)[1][0] for future in held}) == 3
    settings.APP_SCALE_IN_S = 0
    until(lambda: not Replica.objects.exists())
    assert held_resources() == pytest.approx(0.1)
    assert [name for name in runners.get().names() if name.startswith("app-")] == [app.run_name]
    assert set(AppRun.objects.exclude(name=app.run_name).values_list("outcome", flat=True)) == {"scaled_in"}
    assert ask.now()[0] == 200


@pytest.mark.long
def test_a_replica_that_is_not_needed_answers_what_it_has(serve, calls, until, settings, as_alice):
    app = serve(2, min=2, max=2)
    ask = calls(app)
    held = [ask.later() for _number in range(2)]
    until(lambda: in_work(app) == [1, 1])
    settings.APP_SCALE_IN_S = 0
    assert as_alice.call("put", f"users/alice/apps/{app.name}/replicas", {"min": 1, "max": 1}).status_code == 200
    replica = Replica.objects.get()
    until(lambda: Replica.objects.get().phase == "ending")
    Replica.objects.update(not_before=None)  # no gateway remembers it any more
    for _round in range(3):
        scaling.step(app.pk)
    assert load_of(replica.run_name, replica.address) == 1
    ask.go()
    assert {future.result(LIMIT_S)[0] for future in held} == {200}
    until(lambda: not Replica.objects.exists())


@pytest.mark.long
def test_it_sleeps_while_nobody_asks_and_the_next_request_waits_for_it(serve, calls, until, settings, as_alice):
    app = serve(1, min=0, max=1)
    settings.APP_IDLE_S = 0
    until(lambda: Application.objects.get(pk=app.pk).asleep)
    settings.APP_IDLE_S = 1000
    until(lambda: Application.objects.get(pk=app.pk).run_name == "")
    shown = as_alice.call("get", f"users/alice/apps/{app.name}").json()
    assert (shown["state"], shown["asleep"], shown["replicas"]["ready"]) == ("ready", True, 0)
    assert (held_resources(), runners.get().names()) == (0, [])
    ask = calls(app)
    waking = [ask.later(PASS) for _number in range(3)]
    until(lambda: all(future.done() for future in waking))
    assert {future.result()[0] for future in waking} == {200}
    shown = as_alice.call("get", f"users/alice/apps/{app.name}").json()
    assert (shown["state"], shown["asleep"], shown["replicas"]["ready"]) == ("ready", False, 1)
    assert held_resources() == pytest.approx(0.1)
    uptime = as_alice.call("get", f"users/alice/apps/{app.name}/uptime").json()
    assert uptime["failures"] == 0


@pytest.mark.parametrize("own", [later(True), False])
def test_a_crash_is_not_felt(serve, calls, until, own):
    app = serve(2, min=2, max=2, target=4)
    ask = calls(app)
    held = [ask.later(), ask.later()]
    until(lambda: in_work(app) == [1, 1])
    names = [app.run_name, Replica.objects.get().run_name]
    killed = names[0 if own else 1]
    os.kill(process_of(Application(run_name=killed)), signal.SIGKILL)
    until(lambda: Replica.objects.get().run_name not in names)  # its own run is the other one, or still the same
    app.refresh_from_db()
    assert (app.state, app.run_name) == ("ready", names[1 if own else 0])
    ask.go()
    assert [future.result(LIMIT_S)[0] for future in held] == [200, 200]
    assert len({future.result()[1][0] for future in held}) == 1
    until(lambda: count_of(app) == 2)
    assert held_resources() == pytest.approx(0.2)
    assert AppRun.objects.get(name=killed).outcome == "failed"


@pytest.mark.long
def test_a_stop_with_the_platform_is_no_failure(serve, until):
    app = serve(2, min=2, max=2)
    stopped = Replica.objects.get().run_name
    runners.get().stop(stopped, 5)
    until(lambda: Replica.objects.get().run_name not in ("", stopped))
    until(lambda: count_of(app) == 2)
    assert AppRun.objects.get(name=stopped).outcome == "restarted"
    assert Replica.objects.get().failures == 0


@pytest.mark.long
def test_all_replicas_move_to_another_model(serve, calls, until, alice, as_alice):
    app = serve(3, min=3, max=3)
    other = storage.model_dir("alice", "other")
    other.mkdir(parents=True)
    (other / "predictor.py").write_text(HOLDING.replace("ADDED", "7"))
    app.model.__class__.objects.create(
        user=alice, tenant=alice.tenant, name="other", src="home/p.py", size=1, state="ready", reserved=False
    )
    ask, stop, answers = calls(app), threading.Event(), []

    def hammer() -> None:
        while not stop.is_set():
            answers.append(ask.now())

    hammering = ask.pool.submit(hammer)
    try:
        body = {"model_name": "other"}
        assert as_alice.call("put", f"users/alice/apps/{app.name}/rollout", body).status_code == 200
        until(lambda: count_of(app) == 3 and not Replica.objects.exclude(generation=generation_of(app)).exists())
        until(lambda: {answer[1] for _status, answer in answers[-6:]} == {7})
    finally:
        stop.set()
        hammering.result(LIMIT_S)
    assert {status for status, _answer in answers} == {200}
    until(lambda: held_resources() == pytest.approx(0.3))


def generation_of(app: Application) -> int:
    return Application.objects.get(pk=app.pk).generation


@pytest.mark.long
def test_what_does_not_fit_waits_and_says_why(serve, calls, until, as_alice, default_tenant):
    Tenant.objects.update(cpu=0.2)
    app = serve(1, min=1, max=3, target=1)
    ask = calls(app)
    held = [ask.later() for _number in range(3)]
    until(lambda: count_of(app) == 2 and Replica.objects.filter(phase="waiting").exclude(reason="").exists())
    shown = as_alice.call("get", f"users/alice/apps/{app.name}").json()["replicas"]
    assert (shown["ready"], shown["starting"]) == (2, 1)
    assert "there is no room" in shown["reason"]
    ask.go()
    assert {future.result(LIMIT_S)[0] for future in held} == {200}


@pytest.mark.long
@pytest.mark.parametrize("end", ["delete", later("stop")])
def test_the_end_of_an_application_is_the_end_of_its_replicas(serve, until, as_alice, end):
    app = serve(3, min=3, max=3)
    if end == "stop":
        as_alice.call("put", f"users/alice/apps/{app.name}:stop")
    else:
        as_alice.call("delete", f"users/alice/apps/{app.name}?trash=0")
    until(lambda: not runners.get().names() and not Replica.objects.exists())
    until(lambda: held_resources() == 0)
    assert not AppRun.objects.filter(ended=None).exists()
    assert not ResourceRequest.objects.filter(state__in=["tried", "confirmed"]).exists()


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"min": 3, "max": 2}, "replicas.max: must be at least"),
        ({"min": -1}, "min"),
        ({"max": 0}, "max"),
        ({"max": 33}, "max"),
        ({"target": 0}, "target"),
        ({"most": 2}, "most"),
        ({"min": 32, "max": 32}, "cpu"),
    ],
)
def test_wrong_numbers_are_refused(deploy, as_alice, default_tenant, numbers, message):
    Tenant.objects.update(cpu=2)
    app = deploy()
    assert message in as_alice.refused("put", f"users/alice/apps/{app.name}/replicas", numbers)
    body = {"name": "other", "model_name": "adder", "cpu": 0.1, "ram": 400, "replicas": numbers}
    assert message in as_alice.refused("post", "users/alice/apps", body)
    assert not Application.objects.filter(name="other").exists()


def test_the_page_changes_how_many_there_are(deploy, alice, client):
    app = deploy()
    client.force_login(alice)
    page = f"/apps/{app.name}"
    assert "0 of at most 1 ready" in visible_text(client.get(page))  # it is starting
    client.post(f"{page}/change", {"do": "replicas", "min": "0", "max": "4", "target": ""})
    app.refresh_from_db()
    assert (app.replicas_min, app.replicas_max, app.target) == (0, 4, 8)
    answer = client.post(f"{page}/change", {"do": "replicas", "min": "5", "max": "4", "target": ""}, follow=True)
    assert "must be at least the smallest number, 5" in answer.content.decode()
    app.refresh_from_db()
    assert app.replicas_min == 0
    assert "0 of at most 4 ready" in visible_text(client.get(page))
