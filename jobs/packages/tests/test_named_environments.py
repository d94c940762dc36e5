"""Named environments: made under a name, shared in the tenant, in versions."""

from __future__ import annotations

import time

import pytest

import runners
from accounts.lifecycle import token_of
from accounts.tenancy import members
from conftest import Api
from jobs import reconcile
from jobs.models import EnvironmentVersion, Job
from jobs.packages import store
from jobs.packages.named import locating
from kernel import storage
from mlp.tests.patience import LIMIT_S, rest
from resources.models import Tenant

from .wheels import wheel

pytestmark = pytest.mark.django_db(transaction=True)

NAMED = "users/alice/named_environments"
USES = "import colours, sys\nprint(colours.__version__)"
ENDLESS = USES + "\nimport time\nwhile True: time.sleep(0.1)"
PROJECT = '[project]\nname = "paint"\nversion = "1"\ndependencies = ["colours"]\n'
LOCK = """
version = 1
[[package]]
name = "paint"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "colours" }]
[[package]]
name = "colours"
version = "1.0"
source = { registry = "https://pypi.org/simple" }
"""


@pytest.fixture(autouse=True)
def wheels(settings, tmp_path):
    """Return a folder with wheels, which is the administrator's index, and forget all environments."""
    folder = tmp_path / "wheels"
    wheel(folder, "colours", "1.0", requires=("hues",))
    wheel(folder, "colours", "2.0", requires=("hues",))
    wheel(folder, "hues", "0.3")
    settings.PIP_INDEX_URL = folder.as_uri()
    storage.remove(store.top())
    return folder


@pytest.fixture
def settled(tasks):
    """Run the workers and the reconcile loop until no version is being installed or deleted."""

    def wait() -> None:
        end = time.monotonic() + LIMIT_S
        while EnvironmentVersion.objects.filter(state__in=["building", "deleting"]).exists():
            assert time.monotonic() < end, "an installation has not ended"
            tasks.run()
            reconcile.run()
            rest(0.1)

    return wait


@pytest.fixture
def make(as_alice, settled):
    """Create a version through REST and return its detail once it is ready or has failed."""

    def post(requirements: str = "colours==1.0", name: str = "paint-cpu", api=as_alice, user="alice", **fields) -> dict:
        given = {"requirements": requirements} if requirements else {}
        answer = api.call("post", f"users/{user}/named_environments", {"name": name, **given, **fields})
        assert answer.status_code == 201, answer.content
        settled()
        return detail(api, answer.json()["reference"], user)

    return post


def detail(api, reference: str, user: str = "alice") -> dict:
    answer = api.call("get", f"users/{user}/named_environments/{reference}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def log(name: str = "fit", user: str = "alice") -> str:
    return (storage.job_dir(user, name) / "log" / "job.log").read_text()


def submit_of_bob(as_bob, name: str, **fields):
    home = storage.home_dir("bob")
    home.mkdir(parents=True, exist_ok=True)
    (home / "train.py").write_text(USES)
    return as_bob.call("post", "users/bob/jobs", {"name": name, "entry": "train.py", **fields})


def test_each_change_is_the_next_version_and_says_what_is_in_it(make, as_alice):
    first = make()
    assert (first["reference"], first["state"], first["version"]) == ("paint-cpu@1", "ready", 1)
    assert (first["owner"], first["user"], first["tenant"]) == ("alice", "alice", "default")
    assert first["requirements"] == "colours==1.0\n"
    assert first["packages"] == ["colours==1.0", "hues==0.3"]
    assert first["size"] >= 1
    assert first["used_by"] == []
    assert {path.stat().st_nlink for path in store.top().rglob("colours.py")} == {1}  # no later installation reaches it
    assert " + colours==1.0\n + hues==0.3" in first["progress"]["log"]
    assert first["progress"]["collected"] == 2
    second = make("colours")
    assert (second["reference"], second["packages"][0]) == ("paint-cpu@2", "colours==2.0")
    rows = as_alice.call("get", NAMED)
    assert [row["reference"] for row in rows.json()] == ["paint-cpu@2", "paint-cpu@1"]
    assert rows["X-Total-Count"] == "2"
    assert detail(as_alice, "paint-cpu")["version"] == 2


@pytest.mark.long
def test_a_pyproject_with_and_without_its_lock(make):
    assert make("", pyproject=PROJECT)["packages"] == ["colours==2.0", "hues==0.3"]
    assert make("", pyproject=PROJECT, lock=LOCK)["requirements"] == "colours==1.0\n"


def test_jobs_of_the_tenant_share_one_installation(make, submit, until, as_alice, as_bob, bob):
    make()
    job = until(submit(USES, environment="paint-cpu"), "finished")
    assert log() == "1.0\n"
    assert as_alice.call("get", "users/alice/jobs/fit").json()["environment"] == "paint-cpu@1"
    made = submit_of_bob(as_bob, "paint", environment="paint-cpu@1")
    assert made.status_code == 201, made.content
    other = until(Job.objects.get(name="paint"), "finished")
    assert log("paint", "bob") == "1.0\n"
    assert other.packages == job.packages
    assert not (store.top() / str(bob.pk)).exists()
    used_by = detail(as_alice, "paint-cpu")["used_by"]
    assert {(use["user"], use["name"], use["live"]) for use in used_by} == {("alice", "fit", False), ("bob", "", False)}


@pytest.mark.long
def test_a_job_keeps_its_version_when_it_is_run_again(make, submit, until, as_alice):
    make()
    until(submit(USES, environment="paint-cpu"), "finished")
    make("colours==2.0")
    again = as_alice.call("post", "users/alice/jobs/fit:rerun", {"name": "again"})
    assert again.json()["environment"] == "paint-cpu@1", again.content
    until(Job.objects.get(name="again"), "finished")
    assert log("again") == "1.0\n"
    newest = as_alice.call("post", "users/alice/jobs/fit:rerun", {"name": "newest", "environment": "paint-cpu"})
    assert newest.json()["environment"] == "paint-cpu@2"
    bare = as_alice.call("post", "users/alice/jobs/fit:rerun", {"name": "bare", "requirements": "hues"})
    assert (bare.json()["environment"], bare.json()["requirements"]) == ("", "hues")


@pytest.mark.long
def test_files_beside_the_script_are_not_used_with_an_environment(make, submit, until, home):
    make()
    (home / "requirements.txt").write_text("colours==2.0")
    until(submit(USES, environment="paint-cpu", find_requirements=True), "finished")
    assert log() == "1.0\n"


@pytest.mark.long
def test_what_cannot_be_used_says_why(make, script, as_alice, as_bob, tasks):
    script(USES)
    body = {"name": "fit", "entry": "train.py"}

    def refused(reference: str, **fields) -> str:
        return as_alice.refused("post", "users/alice/jobs", {**body, "environment": reference, **fields})

    assert refused("paint-cpu") == "environment: there is no environment paint-cpu in the tenant default"
    assert refused("Paint CPU").startswith("environment: must be the name of an environment")
    make()
    assert refused("paint-cpu@2") == "environment: there is no environment paint-cpu@2 in the tenant default"
    assert refused("paint-cpu", requirements="hues") == "requirements: give either packages or an environment"
    as_alice.call("post", NAMED, {"name": "slow", "requirements": "hues"})
    assert refused("slow") == "environment: slow@1 is still being installed; it can be used once it is ready"


@pytest.mark.long
def test_a_failed_installation_names_the_package_and_can_be_tried_again(make, as_alice, wheels, settled):
    row = make("hues\nstripes==9")
    assert (row["state"], row["failed_package"]) == ("failed", "stripes==9")
    assert row["reason"].startswith("stripes==9: the index has no package of this name\n")
    refusal = as_alice.refused("put", f"{NAMED}/paint-cpu@2:retry")
    assert "environment" in refusal
    wheel(wheels, "stripes", "9")
    assert as_alice.call("put", f"{NAMED}/paint-cpu@1:retry").json()["state"] == "building"
    settled()
    row = detail(as_alice, "paint-cpu@1")
    assert (row["state"], row["reason"], row["failed_package"]) == ("ready", "", "")
    assert as_alice.refused("put", f"{NAMED}/paint-cpu@1:retry").startswith("state: the environment is ready")


@pytest.mark.long
def test_the_newest_that_is_ready_is_meant_while_the_next_one_fails(make, submit, until, as_alice):
    make()
    assert make("colours==9")["failed_package"] == "colours==9"
    until(submit(USES, environment="paint-cpu"), "finished")
    assert as_alice.call("get", "users/alice/jobs/fit").json()["environment"] == "paint-cpu@1"
    refusal = as_alice.refused("post", "users/alice/jobs", {"name": "b", "entry": "train.py",
                                                            "environment": "paint-cpu@2"})  # fmt: skip
    assert refusal == "environment: paint-cpu@2 could not be installed: colours==9: the index has no such version"


@pytest.mark.long
def test_only_its_owner_and_the_tenants_administrators_change_it(make, as_alice, as_bob, bob, settled):
    make()
    body = {"name": "paint-cpu", "requirements": "hues"}
    refusal = as_bob.refused("post", "users/bob/named_environments", body)
    assert refusal == "name: only alice and the administrators of the tenant can change this environment"
    assert as_bob.refused("delete", "users/bob/named_environments/paint-cpu@1").startswith("name: only alice")
    assert detail(as_bob, "paint-cpu", "bob")["packages"] == ["colours==1.0", "hues==0.3"]
    members.put(tenant="default", user="bob", role="admin", by="test")
    assert as_bob.call("post", "users/bob/named_environments", body).status_code == 201
    settled()
    second = detail(as_bob, "paint-cpu", "bob")
    assert (second["version"], second["owner"], second["user"]) == (2, "alice", "bob")
    assert (store.top() / str(bob.pk)).is_dir()


@pytest.mark.long
def test_another_tenants_are_none(make, make_user):
    make()
    Tenant.objects.create(name="lab", cpu=4, gpu=0, ram=4096, rom=4096)
    stranger = Api(token_of(make_user("erin")))
    members.put(tenant="lab", user="erin", role="member", by="test")
    members.remove(tenant="default", user="erin", by="test")
    assert stranger.call("get", "users/erin/named_environments").json() == []
    assert "environment" in stranger.refused("get", "users/erin/named_environments/paint-cpu")
    home = storage.home_dir("erin")
    home.mkdir(parents=True, exist_ok=True)
    (home / "train.py").write_text(USES)
    body = {"name": "fit", "entry": "train.py", "environment": "paint-cpu@1"}
    refusal = stranger.refused("post", "users/erin/jobs", body)
    assert refusal == "environment: there is no environment paint-cpu@1 in the tenant lab"


@pytest.mark.long
def test_what_a_job_needs_cannot_be_deleted_and_numbers_are_not_used_again(make, submit, until, as_alice, settled):
    made = make()
    job = until(submit(ENDLESS, environment="paint-cpu"), "running")
    assert as_alice.refused("delete", f"{NAMED}/paint-cpu@1") == "state: the job fit of alice uses this environment"
    reconcile.run()
    assert (store.top() / str(job.user_id) / job.packages).is_dir()
    as_alice.call("put", "users/alice/jobs/fit:cancel")
    until(job, "error")
    assert as_alice.call("delete", f"{NAMED}/paint-cpu@1").json()["reference"] == made["reference"]
    settled()
    assert not (store.top() / str(job.user_id) / job.packages).exists()
    assert as_alice.call("get", NAMED).json() == []
    assert make("hues")["reference"] == "paint-cpu@2"
    refusal = as_alice.refused("post", "users/alice/jobs/fit:rerun", {"name": "again"})
    assert refusal == "environment: there is no environment paint-cpu@1 in the tenant default"


@pytest.mark.long
def test_what_was_removed_from_the_disk_is_installed_again_in_the_same_versions(make, submit, until, wheels, settings):
    row = make("colours<2.5")
    assert row["packages"] == ["colours==2.0", "hues==0.3"]
    settings.PACKAGES_DAYS = 0
    reconcile.run()
    assert not any(store.top().glob("*/*"))
    wheel(wheels, "colours", "2.1")
    settings.PACKAGES_DAYS = 30
    until(submit(USES, environment="paint-cpu"), "finished")
    assert log() == "2.0\n"


@pytest.mark.long
def test_an_installation_that_is_deleted_ends(as_alice, tasks, settled):
    as_alice.call("post", NAMED, {"name": "paint-cpu", "requirements": "colours"})
    version = EnvironmentVersion.objects.get()
    run = f"pkg-{version.user_id}-{version.packages}"
    while run not in runners.get().names():
        tasks.run_once()
    assert as_alice.call("delete", f"{NAMED}/paint-cpu@1").status_code == 200
    settled()
    assert run not in runners.get().names()
    assert as_alice.call("get", NAMED).json() == []


@pytest.mark.long
def test_nothing_of_a_deleted_version_stays_on_the_disk(make, submit, until, as_alice, settled, settings):
    make()
    settings.PACKAGES_DAYS = 0
    reconcile.run()
    settings.PACKAGES_DAYS = 30
    until(submit(USES, environment="paint-cpu"), "finished")  # it is installed again, from its pins
    version = EnvironmentVersion.objects.get()
    # As for an image of jobs that is no longer offered.
    store.Environment(version.user_id, "0" * 32).note_base(version.runtime, "", locating.lines_of(version))
    assert as_alice.call("delete", f"{NAMED}/paint-cpu@1").status_code == 200
    settled()
    assert not any(store.top().glob("*/*"))


@pytest.mark.long
def test_a_running_job_of_another_user_keeps_its_files(make, until, as_bob, bob, settings):
    make()
    home = storage.home_dir("bob")
    home.mkdir(parents=True, exist_ok=True)
    (home / "train.py").write_text(ENDLESS)
    body = {"name": "paint", "entry": "train.py", "environment": "paint-cpu"}
    assert as_bob.call("post", "users/bob/jobs", body).status_code == 201
    job = until(Job.objects.get(name="paint"), "running")
    settings.PACKAGES_DAYS = 0
    reconcile.run()
    assert store.Environment(job.packages_owner, job.packages).is_ready
    as_bob.call("put", "users/bob/jobs/paint:cancel")
    until(job, "error")


@pytest.mark.long
def test_the_same_lines_again_mean_what_is_newest_now(make, wheels):
    assert make("colours")["packages"][0] == "colours==2.0"
    wheel(wheels, "colours", "3.0")
    assert make("colours")["packages"] == ["colours==3.0"]


def test_a_name_without_a_ready_version_says_why(make, script, as_alice):
    script(USES)
    make("colours==9")
    body = {"name": "fit", "entry": "train.py", "environment": "paint-cpu"}
    refusal = as_alice.refused("post", "users/alice/jobs", body)
    assert refusal == "environment: paint-cpu@1 could not be installed: colours==9: the index has no such version"


@pytest.mark.long
def test_byte_order_marks_and_line_ends_of_other_systems_do_no_harm(make):
    assert make("\ufeffcolours==1.0\r\nhues\r\n")["requirements"] == "colours==1.0\nhues\n"
    assert make("", pyproject="\ufeff" + PROJECT.replace("\n", "\r\n"))["state"] == "ready"


@pytest.mark.long
def test_packages_that_exclude_each_other_are_named(make, wheels):
    wheel(wheels, "stripes", "1.0", requires=("colours==2.0",))
    row = make("stripes\ncolours==1.0")
    assert (row["state"], "colours==1.0" in row["failed_package"]) == ("failed", True), row
    assert "these packages exclude each other" in row["reason"]


@pytest.mark.parametrize("fields", [
    {"name": "Paint"}, {"name": "-paint"}, {"name": "paint@1"}, {"name": "x" * 51}, {"requirements": ""},
    {"requirements": "-r other.txt"}, {"requirements": "--index-url https://evil.example"}, {"requirements": "./here"},
    {"requirements": "# nothing"}, {"pyproject": PROJECT}, {"lock": LOCK}, {"runtime": "cobol"}, {"tenant": "nowhere"},
    {"requirements": "", "pyproject": "dependencies ="},
    {"requirements": "", "pyproject": PROJECT, "lock": "version = 2"},
])  # fmt: skip
def test_what_is_no_environment_is_refused_and_leaves_nothing(as_alice, fields):
    assert as_alice.refused("post", NAMED, {"name": "paint", "requirements": "hues", **fields})
    assert as_alice.call("get", NAMED).json() == []
