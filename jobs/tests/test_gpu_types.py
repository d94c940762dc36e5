"""Jobs that name the type of their GPUs. The tenant has eight CPUs and two GPUs: one A100 and one V100."""

from __future__ import annotations

import re

import pytest
from django.core.exceptions import ImproperlyConfigured

import runners
from jobs import launching, lifecycle, preemption, reconcile
from jobs.models import Job
from jobs.queue import turns
from jobs.queue.line import lines
from jobs.queue.waiting import explain
from kernel import storage
from kernel.tests.nats_tools import until as wait_for
from mlp import limit_settings
from mlp.tests.page_world import visible_text, visitor
from resources import inventory, products
from resources.models import GpuProduct, ResourceRequest, Tenant
from runners.gpus import Device

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]
A100, V100 = "NVIDIA-A100-SXM4-80GB", "Tesla-V100-SXM2-16GB"
NAMES = f"gpu_type: no GPU here is of this type; there are: {A100}, {V100}"
INSTALLED = [Device("GPU-a", "NVIDIA A100-SXM4-80GB", 80_000, 0), Device("GPU-v", "Tesla V100-SXM2-16GB", 16_000, 1)]
FORM = {"name": "fit", "entry": "train.py", "runtime": "python", "cpu": "1", "gpu": "1", "ram": "512"}


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(runners.get(), "devices", lambda: INSTALLED)
    inventory.follow_products()


@pytest.fixture
def create(home):
    """`create(user, name, gpu=…)` submits a job."""

    def make(user, name: str, **fields) -> Job:
        (storage.home_dir(user.username) / "train.py").write_text("pass")
        return lifecycle.create_job(user=user, name=name, entry="train.py", by="test", **{"gpu": 1, **fields})

    return make


def running(job: Job) -> Job:
    lifecycle.order_run(job.pk)
    lifecycle.note_start(job.pk, f"job-{job.pk}-1")
    job.refresh_from_db()
    assert job.state == "running"
    return job


def admitted() -> list[str]:
    """Return the names of the jobs that have their resources; what pages say of the queue has to agree."""
    turns.reordered()
    about_to = {pk for line in lines().values() for pk in line.fits}
    names = {Job.objects.get(pk=pk).name for pk in lifecycle.reserve_next()}
    assert {Job.objects.get(pk=pk).name for pk in about_to} == names
    return sorted(Job.objects.filter(reserved=True).values_list("name", flat=True))


def reason(job: Job) -> str:
    turns.reordered()
    return str(explain(job).reason)


# --- submission -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"gpu": 1, "gpu_type": "h100"}, NAMES),
        ({"gpu": 1, "gpu_type": "a10"}, NAMES),
        ({"gpu": 1, "gpu_type": "-"}, NAMES),
        ({"gpu": 2, "gpu_type": "A100"}, "gpu_type: requested 2 × A100, but there are 1"),
        ({"gpu": 1, "workers": 2, "gpu_type": "a100"}, "gpu_type: requested 2 × a100, but there are 1"),
        ({"gpu_type": "a100"}, "gpu_type: names the type of GPUs, but no GPU is requested"),
        ({"gpu": 1, "gpu_type": 5}, "gpu_type: must be a string"),
    ],
)
def test_what_is_not_here_is_refused_with_what_is(as_alice, script, fields, problem):
    body = {"name": "fit", "entry": script("pass"), **fields}
    assert as_alice.refused("post", "users/alice/jobs", body) == problem


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("sweeps", {"job": {"entry": "train.py", "gpu": 1, "gpu_type": "h100"}, "space": {"lr": {"choices": [1, 2]}},
                    "objective": {"metric": "loss", "direction": "minimize"}}, "job."),
        ("pipelines", {"steps": {"fit": {"entry": "train.py", "gpu": 1, "gpu_type": "h100"}}}, "steps.fit."),
        ("schedules", {"job": {"entry": "train.py", "gpu": 1, "gpu_type": "h100"}, "cron": "0 3 * * *"}, "job."),
    ],
)  # fmt: skip
def test_what_submits_jobs_later_refuses_it_at_once(as_alice, script, path, body, place):
    script("pass")
    assert as_alice.refused("post", f"users/alice/{path}", {"name": "fit", **body}) == f"{place}{NAMES}"


def test_a_platform_without_known_products_says_so(as_alice, script):
    products.follow({})
    body = {"name": "fit", "entry": script("pass"), "gpu": 1, "gpu_type": "a100"}
    words = "gpu_type: the types of GPUs are not known here"
    assert as_alice.refused("post", "users/alice/jobs", body) == words
    assert 'name="gpu_type"' not in visitor(Tenant.objects.get().users.get(username="alice")).get("/jobs").text


def test_the_job_gets_a_device_of_its_type_and_keeps_it_in_a_rerun(as_alice, submit, until):
    job = until(submit("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", gpu=1, gpu_type="a100"), "finished")
    assert as_alice.call("get", "users/alice/jobs/fit/log").content.decode() == "GPU-a\n"
    assert as_alice.call("get", "users/alice/jobs/fit").json()["gpu_type"] == "a100"
    assert "<dt>GPUtype</dt><dd>a100</dd>" in "".join(visitor(job.user).get("/jobs/fit").text.split())
    assert as_alice.call("post", "users/alice/jobs/fit:rerun", {}).json()["gpu_type"] == "a100"
    changed = as_alice.call("post", "users/alice/jobs/fit:rerun", {"gpu_type": "v100"}).json()
    assert changed["gpu_type"] == "v100"
    found = as_alice.call("get", "users/alice/runs?filter=gpu_type%20%3D%20%22v100%22").json()["runs"]
    assert [run["name"] for run in found] == [changed["name"]]
    table = visitor(job.user).get("/jobs?col=gpu_type&sort=gpu_type").text
    assert re.findall(r"<td[^>]*>\s*v100\s*</td>", table)


def test_the_forms_offer_the_products(alice, script, settings):
    settings.GPU_TYPES = {"big": (A100,), "gone": ("NVIDIA-H100",)}
    script("pass")
    mine = visitor(alice)
    for path in ("/jobs", "/sweeps", "/schedules"):
        page = mine.get(path).text
        assert f'<option value="{A100}" >' in page
        assert '<option value="big" >' in page
        assert 'value="gone"' not in page
    assert "no GPU here is of this type" in mine.post("/jobs", {**FORM, "gpu_type": "gone"}).text
    assert mine.post("/jobs", {**FORM, "gpu_type": "big"}).status_code == 302
    assert Job.objects.get(name="fit").gpu_type == "big"
    assert '<option value="big" selected>big</option>' in mine.get("/jobs?from=fit").text


# --- admission --------------------------------------------------------------------------------------------------
def test_a_job_waits_for_its_type_and_the_others_go_on(create, alice, as_alice):
    first = running(create(alice, "first", gpu_type="a100"))
    waits = create(alice, "waits", gpu_type="A100")
    create(alice, "other", gpu_type="v100")
    create(alice, "plain", gpu=0)
    assert admitted() == ["first", "other", "plain"]
    words = "Not enough free resources: needs 1 × A100, 0 free."
    assert reason(waits) == words
    assert as_alice.call("get", "users/alice/jobs/waits/queue").json()["reason"] == words
    assert words in visible_text(visitor(alice).get("/jobs/waits"))
    assert Tenant.objects.get().gpu_inuse == 2
    lifecycle.cancel(user=alice, name="first", by="test")
    launching.clean(first.pk)
    assert admitted() == ["other", "plain", "waits"]
    assert ResourceRequest.objects.get(pk=f"job:{waits.pk}").gpu == 1


def test_a_job_without_a_type_does_not_take_what_one_ahead_of_it_waits_for(create, alice, bob):
    Tenant.objects.update(gpu=3)
    products.follow({A100: 2, V100: 1})
    running(create(alice, "first", gpu_type="a100"))
    waits = create(alice, "waits", gpu=2, gpu_type="a100")
    create(bob, "any")
    create(alice, "more")
    assert admitted() == ["any", "first"]  # `any` has the V100
    assert reason(waits) == "Not enough free resources: needs 2 × a100, 1 free."
    assert reason(Job.objects.get(name="more")) == "Not enough free resources: needs 1 × GPU, 0 free."


def test_runs_without_a_type_count_where_there_is_no_other_gpu_for_them(create, alice):
    running(create(alice, "any"))
    create(alice, "first", gpu_type="a100")
    assert admitted() == ["any", "first"]
    assert products.current().left("v100") == 0
    assert products.current().left("a100") == 0


@pytest.mark.parametrize(
    ("totals", "held", "kind", "left"),
    [
        ({"A100-40GB": 2, "A100-80GB": 1}, {"a100": 2}, "a100-80gb", 1),  # the two have the others
        ({"A100-40GB": 2, "A100-80GB": 1}, {"a100": 3}, "a100-80gb", 0),
        ({"A100-40GB": 2, "A100-80GB": 1}, {"a100-80gb": 1}, "a100", 2),
        ({"A100-40GB": 2, "A100-80GB": 1}, {"a100-80gb": 1, "a100-40gb": 1}, "a100", 1),
        ({"A100": 1, "V100": 1}, {"": 1}, "a100", 1),
        ({"A100": 1, "V100": 1}, {"": 2}, "a100", 0),
        ({"A100": 1, "V100": 1, "": 1}, {"": 2}, "a100", 1),  # of a node without a label
        ({"A100": 1}, {"h100": 5}, "a100", 1),  # of nodes that are gone
        ({"A100": 1}, {"a100": 3}, "a100", 0),
        ({"A100": 1, "V100": 1}, {"a100": 3}, "v100", 1),
        ({}, {}, "a100", 0),
    ],
)
def test_overlapping_types_are_counted_against_what_they_can_have(totals, held, kind, left):
    stock = products.Stock(totals, {name: count for name, count in held.items() if name}, sum(held.values()))
    assert stock.left(kind) == left
    assert stock.fresh().left(kind) == left


def test_two_admissions_at_once_do_not_take_the_same_gpu(create, alice, bob):
    Tenant.objects.update(gpu=8)
    running(create(alice, "first", gpu_type="a100"))
    jobs = [create(alice, "one", gpu_type="a100"), create(bob, "two", gpu_type="a100")]
    products.follow({A100: 2, V100: 1})
    assert len({*admitted()} & {"one", "two"}) == 1
    assert sum(Job.objects.get(pk=job.pk).reserved for job in jobs) == 1


def test_a_preemptible_job_of_the_type_steps_back(create, alice, bob, settings):
    settings.PREEMPT_WAIT_S = 0
    running(create(bob, "cheap", gpu=0, cpu=1, preemptible=True))
    running(create(bob, "typed", gpu_type="a100", preemptible=True))
    create(alice, "waits", gpu_type="a100")
    assert {Job.objects.get(pk=pk).name for pk in preemption.run()} == {"typed"}


def test_a_taken_device_is_waited_for_at_the_start(create, alice, monkeypatch, tasks, until):
    """A run that has named no type may have it: the platform does not know which devices those have."""
    taken = [True]
    runner = runners.get()

    def need(kind: str, count: int) -> None:
        if taken[0]:
            raise runners.NoGpus("needs 1 × %(type)s, 0 free on this machine now", type=kind)

    monkeypatch.setattr(runner, "need_gpus", need)
    job = create(alice, "fit", gpu_type="a100")

    def waits() -> bool:
        tasks.run()
        reconcile.run()
        job.refresh_from_db()
        return bool(job.reason)

    wait_for(waits)
    assert str(job.reason) == "waiting to start: needs 1 × a100, 0 free on this machine now"
    assert (job.state, job.reserved) == ("creating", True)
    taken[0] = False
    until(job, "finished")


# --- what there is ----------------------------------------------------------------------------------------------
def test_the_products_follow_the_machine(monkeypatch):
    assert dict(GpuProduct.objects.values_list("name", "count")) == {A100: 1, V100: 1}
    monkeypatch.setattr(runners.get(), "devices", lambda: [INSTALLED[1], INSTALLED[1]])
    inventory.follow_products()
    assert dict(GpuProduct.objects.values_list("name", "count")) == {V100: 2}
    assert products.offered() == [V100]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("a100", "must be like a100=NVIDIA-A100-SXM4-80GB|…"),
        ("a100=", "must be like a100="),
        ("=NVIDIA-A100", "must be like a100="),
        ("a100=A,A100=B", "has a name twice: A100"),
    ],
)
def test_names_that_say_nothing_are_refused_at_the_start(monkeypatch, settings, value, problem):
    monkeypatch.setenv("MLP_GPU_TYPES", value)
    with pytest.raises(ImproperlyConfigured) as refused:
        limit_settings.of_gpu_types(settings.RUNS)
    assert problem in str(refused.value)


def test_names_are_read(monkeypatch, settings):
    monkeypatch.setenv("MLP_GPU_TYPES", "big=NVIDIA A100-SXM4-80GB | NVIDIA-H100-NVL, V100=Tesla-V100-SXM2-16GB")
    named = {"big": ("NVIDIA A100-SXM4-80GB", "NVIDIA-H100-NVL"), "v100": ("Tesla-V100-SXM2-16GB",)}
    assert limit_settings.of_gpu_types(settings.RUNS) == named
