"""POST …/jobs: accepted and refused requests."""

from __future__ import annotations

from functools import partial

import pytest

from datasets.models import Dataset
from jobs import environment, lifecycle
from jobs.models import Job
from kernel import storage
from kernel.errors import Fault
from mlp.operators.tests.admin_world import put
from mlp.tests.tiers import few
from resources.models import ResourceRequest, Tenant

pytestmark = pytest.mark.django_db


def test_it_returns_all_fields_with_the_defaults(as_alice, home):
    response = as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "train.py"})
    assert response.status_code == 201
    expected = {
        "name": "fit", "user": "alice", "tenant": "default", "runtime": "python", "entry": "train.py",
        "gpu": 0, "cpu": 1, "ram": 512, "state": "creating", "progress": 0,
    }  # fmt: skip
    assert expected.items() <= response.json().items()


def test_a_submission_and_its_start_take_few_statements(alice, home, django_assert_max_num_queries):
    """Whoever submits a job waits for each of them. The first one makes the project and the snapshot."""
    submit = partial(lifecycle.create_job, user=alice, entry="train.py", by="alice")
    submit(name="first")
    with django_assert_max_num_queries(19):
        job = submit(name="fit")
    with django_assert_max_num_queries(7):
        started = lifecycle.order_run(job.pk)
    assert (started.user, started.tenant, started.snapshot) == (alice, alice.tenant, job.snapshot)
    with django_assert_max_num_queries(9):
        lifecycle.note_start(job.pk, started.run_name)
    job.refresh_from_db()
    assert (job.state, job.run_started) == ("running", True)


def test_who_submits_in_a_loop_is_told_when_to_go_on(as_alice, as_bob, home, settings):
    settings.SUBMISSIONS_PER_MINUTE = 2
    bodies = [{"name": name, "entry": "train.py"} for name in ("one", "two", "three")]
    taken, last, refused = (as_alice.call("post", "users/alice/jobs", body) for body in bodies)
    assert (taken.status_code, last.status_code, refused.status_code) == (201, 201, 403), taken.content
    wait_s = refused["Retry-After"]
    assert refused.json() == {"msg": f"at most 2 jobs can be submitted in a minute; try again in {wait_s} s"}
    assert 1 <= int(wait_s) <= 30
    (storage.home_dir("bob") / "train.py").write_text("pass")
    assert as_bob.call("post", "users/bob/jobs", {"name": "fit", "entry": "train.py"}).status_code == 201


@pytest.mark.parametrize(
    ("field", "value"),
    few(
        [
            ("name", "Fit"),
            ("name", ""),
            ("name", None),
            ("entry", "../train.py"),
            ("entry", "/train.py"),
            ("entry", "a//b.py"),
            ("entry", "none.py"),
            ("entry", "x" * 201),
            ("runtime", "java"),
            ("gpu", 17),
            ("gpu", -1),
            ("gpu", "1"),
            ("gpu", True),
            ("gpu", 1.0),
            ("cpu", 0),
            ("cpu", 10.5),
            ("cpu", "1"),
            ("ram", 99),
            ("ram", 10001),
            ("tenant", "other"),
            ("datasets", ["none"]),
            ("datasets", "none"),
            ("args", [1]),
            ("env", {"MLP_TOKEN": "x"}),
            ("env", {"a b": "x"}),
            ("env", ["x"]),
            ("retries", 11),
            ("network", "wide"),
            ("network", ""),
            ("network", None),
            ("state", "running"),
        ],
        12,
    ),
)
def test_an_invalid_field_is_named(as_alice, home, field, value):
    body = {"name": "fit", "entry": "train.py", field: value}
    assert as_alice.refused("post", "users/alice/jobs", body).startswith(f"{field}:")
    assert not Job.objects.exists()
    assert not ResourceRequest.objects.exists()


def test_a_dataset_named_twice_is_used_once(as_alice, alice, home):
    put(Dataset, alice, "digits", "ready")
    body = {"name": "fit", "entry": "train.py", "datasets": ["digits", "digits"]}
    assert as_alice.call("post", "users/alice/jobs", body).json()["datasets"] == ["digits"]
    job = Job.objects.get()
    job.run_name, job.datasets = "job-1-1", ["digits", "digits"]  # as rows of earlier days may have it
    targets = [mount.target for mount in environment.run_spec(job, alice).mounts]
    assert targets.count("/datasets/digits") == 1


def test_names_are_unique(as_alice, home):
    body = {"name": "fit", "entry": "train.py"}
    as_alice.call("post", "users/alice/jobs", body)
    assert as_alice.refused("post", "users/alice/jobs", body).startswith("name:")
    assert Job.objects.count() == 1


def test_a_script_behind_a_link_is_refused(as_alice, home):
    (home / "link.py").symlink_to("/etc/passwd")
    assert as_alice.refused("post", "users/alice/jobs", {"name": "fit", "entry": "link.py"})


def test_without_the_broker_nothing_is_stored(as_alice, home, monkeypatch):
    def away():
        raise Fault("the task queue is not available; try again later")

    monkeypatch.setattr("kernel.broker.require", away)
    response = as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "train.py"})
    assert response.status_code == 503
    assert not Job.objects.exists()


def test_other_users_see_nothing_and_staff_see_all(as_alice, as_bob, as_staff, home):
    as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "train.py"})
    theirs = as_bob.refused("get", "users/alice/jobs/fit")
    assert theirs == as_bob.refused("get", "users/bob/jobs/none")
    as_bob.refused("post", "users/alice/jobs", {"name": "mine", "entry": "train.py"})
    assert as_staff.call("get", "users/alice/jobs/fit").json()["name"] == "fit"


@pytest.mark.parametrize(
    ("kind", "value", "name"), few([("cpu", 20, "CPU"), ("ram", 20_000, "RAM_MIB"), ("gpu", 20, "GPU")], 1)
)
def test_an_operator_may_allow_larger_requests(
    as_alice, home, default_tenant, settings, client, alice, kind, value, name
):
    Tenant.objects.update(cpu=100, ram=100_000, gpu=100)
    (home / "train.py").write_text("pass")
    body = {"name": "large", "entry": "train.py", kind: value}
    assert as_alice.refused("post", "users/alice/jobs", body).startswith(f"{kind}: must be ")
    setattr(settings, f"MAX_{name}", value)
    assert as_alice.call("post", "users/alice/jobs", body).status_code == 201
    client.force_login(alice)
    assert f'max="{value}"' in client.get("/jobs?new=1").content.decode()
