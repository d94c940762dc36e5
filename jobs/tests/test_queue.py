"""What a queued job says of its place in the queue, by REST. The tenant has eight CPUs, two GPUs."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Share
from jobs import lifecycle
from jobs.models import Job
from jobs.queue import turns, waiting
from jobs.queue.line import lines
from kernel import storage
from kernel.locking import locked
from kernel.models import StateChange
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few
from resources import limits, tcc
from resources.models import ResourceRequest, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]


@pytest.fixture
def create(home):
    """`create(user, name, cpu=…)` submits a job."""

    def submit(user, name: str, **fields) -> Job:
        (storage.home_dir(user.username) / "train.py").write_text("pass")
        return lifecycle.create_job(user=user, name=name, entry="train.py", by="test", **fields)

    return submit


@pytest.fixture
def queue(as_alice):
    """`queue(name)` asks as alice why her job waits."""

    def ask(name: str, client=as_alice) -> dict:
        response = client.call("get", f"users/alice/jobs/{name}/queue")
        assert response.status_code == 200, response.content
        return response.json()

    return ask


def run(job: Job, *, ago_s: float = 0, progress: int = 0) -> Job:
    """Let the job's run have started."""
    lifecycle.order_run(job.pk)
    lifecycle.note_start(job.pk, f"job-{job.pk}-1")
    Job.objects.filter(pk=job.pk).update(started=timezone.now() - timedelta(seconds=ago_s), progress=progress)
    return job


def finished(user, name: str, lasted_s: float, entry: str = "train.py") -> None:
    now = timezone.now()
    begun = now - timedelta(seconds=lasted_s)
    Job.objects.create(
        user=user, tenant=user.tenant, name=name, entry=entry, state="finished", started=begun, ended=now
    )


def in_seconds(moment: str) -> float:
    return (datetime.fromisoformat(moment) - timezone.now()).total_seconds()


def test_what_is_missing_and_who_holds_it(create, queue, alice):
    run(create(alice, "long", cpu=6, gpu=2))
    create(alice, "next", cpu=3, gpu=1)
    said = queue("next")
    assert (said["position"], said["length"]) == (1, 1)
    assert said["missing"] == {"cpu": 1, "gpu": 1}
    assert said["reason"] == "Not enough free resources: needs 1 GPU, 0 GPU free; needs 3 CPU, 2 CPU free."
    assert said["largest"] == {"cpu": 2, "gpu": 0, "ram": 16000 - 512}
    assert [(holder["kind"], holder["user"], holder["name"], holder["cpu"]) for holder in said["holders"]] == [
        ("job", "alice", "long", 6)
    ]
    assert said["blocker"] is None
    assert said["starts"]["sure"] == "unknown"
    assert "no run like them has finished before" in said["starts"]["basis"]


def test_a_queued_job_says_in_its_reason_what_it_waits_for(create, as_alice, as_bob, alice, bob):
    """Also behind one that has its resources and has not started, and in the list."""
    create(alice, "starts", cpu=6)
    waits = create(alice, "waits", cpu=3)
    create(alice, "behind", cpu=1)
    jobs = "users/alice/jobs"
    reasons = {
        "starts": "", "waits": "Not enough free resources: needs 3 CPU, 2 CPU free.",
        "behind": "Queued behind your job waits: needs 3 CPU, 2 CPU free.",
    }  # fmt: skip
    assert {name: as_alice.call("get", f"{jobs}/{name}").json()["reason"] for name in reasons} == reasons
    assert {row["name"]: row["reason"] for row in as_alice.call("get", jobs).json()} == reasons
    Share.objects.create(owner=alice, kind="job", object_id=waits.pk, name="waits", audience="user", user=bob)
    assert as_bob.call("get", f"{jobs}/waits").json()["reason"] == "Not enough is free."
    assert not Job.objects.exclude(reason="").exists()


def test_the_page_links_to_the_application_that_uses_what_is_missing(create, client, alice):
    tcc.try_(id="app:7", applier="am", request_type="request", owner="alice", cpu=6, ram=256)
    history = {"kind": "application", "object_id": 7, "owner": "alice", "transition": "create", "by": "test"}
    StateChange.objects.create(**history, name="digits")
    create(alice, "next", cpu=3)
    client.force_login(alice)
    page = client.get("/jobs/next")
    assert page.status_code == 200
    assert 'href="/apps/digits"' in page.text


def test_an_own_larger_job_in_the_way_is_named(create, queue, alice):
    run(create(alice, "long", cpu=4))
    create(alice, "big", cpu=8)
    create(alice, "small", cpu=1)
    said = queue("small")
    assert said["reason"] == "Queued behind your job big: needs 8 CPU, 4 CPU free."
    assert (said["position"], said["ahead"]["own"], said["ahead"]["others"]) == (2, ["big"], 0)
    assert (said["blocker"]["name"], said["blocker"]["missing"]) == ("big", {"cpu": 4})
    assert said["largest"] is None


def test_of_holders_with_equal_amounts_the_oldest_is_first(create, queue, alice):
    for name in ("one", "two", "three"):
        run(create(alice, name))
    create(alice, "big", cpu=8)
    last = ResourceRequest.objects.filter(owner="alice", cpu=1).latest("created")
    ResourceRequest.objects.filter(pk=last.pk).update(created=last.created - timedelta(hours=1))
    assert [holder["name"] for holder in queue("big")["holders"]] == ["three", "one", "two"]


def test_other_users_are_counted_and_named_for_administrators_only(create, queue, alice, bob, as_staff, as_bob):
    run(create(alice, "one"))
    run(create(alice, "two"))
    run(create(bob, "theirs", cpu=5))
    create(bob, "secret", cpu=8)
    create(bob, "hidden", cpu=1)
    create(alice, "mine", cpu=1)
    said = queue("mine")
    assert said["ahead"] == {"own": [], "others": 1, "named": []}, "bob has fewer admitted jobs"
    assert said["reason"] == "Queued behind another user's job, which is first in the queue: needs 8 CPU, 1 CPU free."
    assert said["blocker"] == {"user": "", "name": "", "needs": {"gpu": 0, "cpu": 8, "ram": 512}, "missing": {"cpu": 7}}
    assert [(holder["name"], holder["count"], holder["cpu"]) for holder in said["holders"]] == [
        ("one", 1, 1),
        ("two", 1, 1),
        ("", 1, 5),
    ]
    assert not any(name in str(said) for name in ("secret", "hidden", "theirs", "bob"))
    named = queue("mine", as_staff)
    assert (named["ahead"]["named"], named["blocker"]["name"]) == (["bob/secret"], "secret")
    assert {(holder["user"], holder["name"]) for holder in named["holders"]} == {
        ("alice", "one"),
        ("alice", "two"),
        ("bob", "theirs"),
    }
    assert as_bob.refused("get", "users/alice/jobs/mine/queue") == "job: no such job"


def test_a_reader_learns_the_place_and_no_names(create, queue, alice, bob, make_user, as_bob):
    run(create(alice, "holds", cpu=4))
    run(create(make_user("carol"), "theirs", cpu=3))
    create(alice, "bigger", cpu=8)
    job = create(alice, "mine", cpu=2)
    Share.objects.create(owner=alice, kind="job", object_id=job.pk, name="mine", audience="user", user=bob)
    said = queue("mine", as_bob)
    assert (said["position"], said["length"], said["ahead"]) == (2, 2, {"own": [], "others": 1, "named": []})
    assert said["reason"] == "Queued behind another job, which is first in the queue."
    assert (said["free"], said["missing"], said["holders"], said["blocker"], said["largest"]) == (
        {},
        {},
        [],
        None,
        None,
    )
    shown = visible_text(visitor(bob).get("/u/alice/jobs/mine"))
    assert "Position 2 of 2 in the queue" in shown
    assert not any(name in shown + str(said) for name in ("holds", "carol", "theirs", "bigger", " free"))
    assert "Queued behind your job bigger" in visible_text(visitor(alice).get("/jobs/mine"))
    boss = visitor(make_user("boss", is_staff=True)).get("/u/alice/jobs/mine")
    assert "carol/theirs" in visible_text(boss)
    assert 'href="/jobs/' not in boss.text


def test_what_others_hold_is_one_sum(create, queue, alice, bob):
    run(create(bob, "secret", cpu=3))
    run(create(bob, "hidden", cpu=4))
    create(alice, "mine", cpu=2)
    said = queue("mine")
    assert [(holder["name"], holder["user"], holder["count"], holder["cpu"]) for holder in said["holders"]] == [
        ("", "", 2, 7)
    ]


def test_the_users_own_limit(create, queue, alice, bob):
    run(create(alice, "one", cpu=2))
    limits.set_limit(tenant="default", user="alice", by="test", cpu=3)
    create(alice, "two", cpu=2)
    create(alice, "three", cpu=1)
    said = queue("three")
    assert said["by_limit"]
    assert said["reason"] == "Queued behind your job two: needs 2 CPU, 2 CPU of a limit of 3 CPU in use."
    assert (
        queue("two")["reason"] == "Exceeds what is left of your limit: needs 2 CPU, 2 CPU of a limit of 3 CPU in use."
    )
    assert queue("two")["largest"]["cpu"] == 1
    assert (said["position"], said["length"]) == (2, 2)
    assert create(bob, "theirs", cpu=1).reserved is False  # somebody waits: it is admitted by its turn
    assert lifecycle.reserve_next() == [Job.objects.get(name="theirs").pk]


@pytest.fixture
def still(monkeypatch):
    """Stop the clock: estimates change with it."""
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)


@pytest.mark.usefixtures("still")
def test_the_start_is_foretold_from_progress(create, queue, alice):
    run(create(alice, "long", cpu=8), ago_s=100, progress=50)
    create(alice, "next", cpu=1)
    starts = queue("next")["starts"]
    assert starts["basis"] == "from the progress of the current runs"
    assert [round(in_seconds(starts[name])) for name in ("earliest", "likely", "latest")] == [80, 100, 150]


@pytest.mark.usefixtures("still")
def test_the_start_is_foretold_from_earlier_runs_of_the_script(create, queue, alice, bob):
    for number in range(9):
        finished(alice, f"ended{number}", 290 + number)
        finished(bob, f"ended{number}", 10)
    run(create(alice, "long", cpu=8), ago_s=100)
    create(alice, "next", cpu=8)
    create(alice, "later", cpu=8)
    next_one, later = queue("next")["starts"], queue("later")["starts"]
    assert 185 < in_seconds(next_one["earliest"]) <= in_seconds(next_one["latest"]) < 200
    assert next_one["sure"] == "good"
    assert 470 < in_seconds(later["likely"]) < 500
    holder = queue("next")["holders"][0]
    assert 185 < in_seconds(holder["ends"]) < 200


def test_only_a_queued_job_has_a_place(create, as_alice, alice):
    create(alice, "fit")
    assert as_alice.refused("get", "users/alice/jobs/fit/queue") == (
        "state: the job is creating; only a queued job has a position in the queue"
    )


@pytest.mark.parametrize("seed", few(range(6), 2))
def test_the_line_is_what_admission_does(create, alice, bob, make_user, seed):
    """Whatever waits: what `fits` is what reserve_next admits now, and with room for all, `order` is its order."""
    rng = random.Random(seed)
    users = [alice, bob, make_user("carol")]
    Tenant.objects.filter(name="default").update(cpu=1000, ram=10**6)
    for number in range(25):
        user = rng.choice(users)
        job = Job.objects.create(
            user=user, tenant=user.tenant, name=f"job{number}", entry="train.py", cpu=rng.randint(1, 5), ram=100
        )
        if rng.random() < 0.2:
            lifecycle._reserve(job)
        elif rng.random() < 0.2:
            ago = timezone.now() - timedelta(minutes=rng.randint(1, 99))
            Job.objects.filter(pk=job.pk).update(state="finished", started=ago, ended=ago)
    tenant = Tenant.objects.get(name="default")
    limits.set_limit(tenant="default", user="carol", by="test", cpu=rng.randint(3, 30))
    Tenant.objects.filter(name="default").update(cpu=tenant.cpu_inuse + 15)
    before = set(turns.waiting().values_list("pk", flat=True))
    line = lines()[tenant.pk]
    assert lifecycle.reserve_next() == line.fits
    limited = {pk for order in line.limited_order.values() for pk in order}
    assert set(line.order) | limited == before
    Tenant.objects.filter(name="default").update(cpu=1000)
    cache.clear()
    order = list(lines()[tenant.pk].order)
    limits.remove_limit(tenant="default", user="carol", by="test")
    cache.clear()
    order = list(lines()[tenant.pk].order)
    assert lifecycle.reserve_next() == order


def test_it_costs_few_queries_however_many_wait(create, queue, alice, bob, as_alice):
    run(create(bob, "theirs", cpu=8))
    create(alice, "mine", cpu=8)

    def count() -> int:
        with CaptureQueriesContext(connection) as seen:
            queue("mine")
        return len(seen)

    before = count()
    Job.objects.bulk_create(
        Job(user=bob, tenant=bob.tenant, name=f"j{number}", entry="train.py", cpu=1) for number in range(300)
    )
    assert count() <= before + 2
    with CaptureQueriesContext(connection) as seen:
        as_alice.call("get", "users/alice/jobs/mine/queue")
    assert len(seen) < before, "the second look is answered from the cache"


def test_open_pages_hear_of_the_queue_only_when_it_has_moved(create, alice, bob, monkeypatch):
    heard = []
    monkeypatch.setattr(waiting.after_commit, "changed", lambda owner, *_, **__: heard.append(owner))
    running = run(create(bob, "theirs", cpu=8))
    create(alice, "mine", cpu=2)
    heard.clear()
    waiting.announce()
    waiting.announce()
    assert heard == ["alice"]
    lifecycle.fail(running.pk, "x", by="test")
    Job.objects.filter(pk=running.pk).update(run_name="")
    with locked(Job, pk=running.pk) as row:
        lifecycle.give_back(row)
    heard.clear()
    waiting.announce()
    assert heard == ["alice"]
