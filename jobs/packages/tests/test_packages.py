"""Packages that jobs bring: installed once, isolated, from the administrator's index, seen by the job."""

from __future__ import annotations

import os
import tarfile
import threading
import time

import pytest
from django.db import connections

import runners
from accounts import lifecycle as accounts
from jobs import reconcile
from jobs.models import Job
from jobs.packages import building, store
from kernel import storage
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later
from runners.tests.helpers import eventually
from runners.tests.on_cluster import platform_on_cluster

from .wheels import wheel

pytestmark = pytest.mark.django_db(transaction=True)

USES = "import colours, sys\nprint(colours.__version__, colours.__file__.startswith(sys.prefix), sys.prefix)"


@pytest.fixture(autouse=True)
def wheels(settings, tmp_path):
    """Return a folder with wheels, which is the administrator's index, and forget all environments."""
    folder = tmp_path / "wheels"
    wheel(folder, "colours", "1.0")
    wheel(
        folder,
        "colours",
        "2.0",
        "import hues\ndef main(): print('colours say', hues.__version__)",
        ("hues",),
        "colours",
    )
    wheel(folder, "hues", "0.3")
    settings.PIP_INDEX_URL = folder.as_uri()
    storage.remove(store.top())
    return folder


def log(name: str = "fit") -> str:
    return (storage.job_dir("alice", name) / "log" / "job.log").read_text()


def builds(monkeypatch) -> list[str]:
    """Return a list that gets the name of each installation that starts."""
    started: list[str] = []
    real = building._spec

    def spec(environment, need):
        started.append(environment.run_name)
        return real(environment, need)

    monkeypatch.setattr(building, "_spec", spec)
    return started


def test_a_job_gets_its_packages_with_what_they_need(submit, until, as_alice):
    job = until(
        submit("import subprocess\n" + USES + "\nsubprocess.run(['colours'])", requirements="colours==2.*"), "finished"
    )
    assert log().splitlines()[0].startswith("2.0 True ")
    assert log().splitlines()[1] == "colours say 0.3"
    assert as_alice.call("get", "users/alice/jobs/fit").json()["requirements"] == "colours==2.*"
    environment = store.Environment(job.user_id, job.packages)
    assert environment.installed() == ["colours==2.0", "hues==0.3"]


@pytest.mark.long
def test_what_the_platform_brings_is_there_too_and_is_not_installed_again(submit, until, wheels):
    wheel(wheels, "needy", "1.0", "import numpy", ("numpy",))
    job = until(
        submit("import needy, numpy, mlp_report\nprint(numpy.arange(3).sum())", requirements="needy"), "finished"
    )
    assert log() == "3\n"
    assert store.Environment(job.user_id, job.packages).installed() == ["needy==1.0"]


@pytest.mark.long
def test_the_same_lines_are_installed_once_whatever_their_comments(submit, until, monkeypatch):
    started = builds(monkeypatch)
    until(submit(USES, requirements="colours==1.0\nhues"), "finished")
    until(submit(USES, "second", requirements="# two\n\ncolours==1.0   # pinned\nhues\n"), "finished")
    assert len(started) == 1
    until(submit(USES, "third", requirements="colours==2.0"), "finished")
    assert len(started) == 2
    assert log("third").startswith("2.0 True")


@pytest.mark.long
def test_two_jobs_at_once_share_one_installation(submit, until, monkeypatch):
    started = builds(monkeypatch)
    jobs = [submit(USES, name, requirements="colours==1.0", cpu=0.1) for name in ("fit", "second")]
    for job in jobs:
        until(job, "finished")
    assert len(set(started)) == 1
    assert log() == log("second")


@pytest.mark.parametrize("encoding", ["utf-8-sig", later("utf-16")])
def test_a_file_is_read_by_its_byte_order_mark_as_pip_reads_it(submit, until, home, encoding):
    (home / "requirements.txt").write_bytes("colours==1.0\r\n".encode(encoding))
    until(submit(USES, requirements="", find_requirements=True), "finished")
    assert log().startswith("1.0 True")


@pytest.mark.long
def test_environments_are_of_one_user(submit, until, as_bob, bob):
    first = until(submit(USES, requirements="colours==1.0"), "finished")
    (storage.home_dir("bob") / "train.py").write_text(USES)
    made = as_bob.call("post", "users/bob/jobs", {"name": "fit", "entry": "train.py", "requirements": "colours==1.0"})
    assert made.status_code == 201
    second = until(Job.objects.get(user=bob, name="fit"), "finished")
    assert first.packages == second.packages
    assert store.Environment(first.user_id, first.packages).folder != store.Environment(bob.pk, second.packages).folder


def test_a_job_cannot_change_its_environment_where_runs_are_isolated(submit, until):
    if runners.get().confinement.isolation == "none":
        pytest.skip("runs are not isolated here")
    text = "import colours\nopen(colours.__file__, 'a').write('broken')"
    job = until(submit(text, requirements="colours==1.0"), "error")
    assert "Error" in job.reason
    until(submit(USES, "second", requirements="colours==1.0"), "finished")


def test_a_failed_installation_is_the_reason_with_its_last_lines(submit, until, as_alice):
    job = until(submit(USES, requirements="colours==9.9"), "error")
    assert job.reason.startswith("its packages could not be installed: colours==9.9: the index has no such version\n")
    assert "there is no version of colours==9.9" in job.reason
    assert not job.reserved
    found = as_alice.call("get", f"users/alice/jobs/{job.name}/diagnosis").json()
    assert found["title"] == "There is no such version: colours==9.9", found
    # It is not installed a second time for what waited meanwhile, but it is for a job that is submitted later.
    again = until(submit(USES, "second", requirements="colours==9.9"), "error")
    assert "there is no version of" in again.reason


@pytest.mark.long
def test_a_later_job_finds_what_has_been_added_to_the_index(submit, until, wheels):
    until(submit(USES, requirements="colours==3.0"), "error")
    wheel(wheels, "colours", "3.0")
    until(submit(USES, "second", requirements="colours==3.0"), "finished")
    assert log("second").startswith("3.0 True")


@pytest.mark.long
def test_a_file_beside_the_script_is_read_from_the_jobs_code(submit, until, home):
    (home / "requirements.txt").write_text("colours==1.0\n-r more.txt\n")
    (home / "more.txt").write_text("hues  # a comment\n")
    job = until(submit(USES, requirements="-r requirements.txt"), "finished")
    assert store.Environment(job.user_id, job.packages).installed() == ["colours==1.0", "hues==0.3"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-r none.txt", "none.txt is not in the code of the job"),
        ("-r ../secret.txt", "../secret.txt is not below the folder of the script"),
        ("-r /etc/passwd", "/etc/passwd is not below the folder of the script"),
        ("--index-url http://x", "options and paths are not accepted"),
        ("-e .", "options and paths are not accepted"),
        ("./wheels/a.whl", "options and paths are not accepted"),
        ("/tmp/a.whl", "options and paths are not accepted"),
        ("numpy\n--pre", "--pre is not a requirement"),
        ("x @ file:///srv/x.whl", "options and paths are not accepted"),
        ("x[a] @ git+FILE:///srv/x", "options and paths are not accepted"),
        ("x @ ./x.whl", "options and paths are not accepted"),
        ("x==1 --index-url https://index.test", "options and paths are not accepted"),
        ("x>1 -i https://index.test", "options and paths are not accepted"),
        ("x\n" * 1001, "at most 1000 lines"),
        (["numpy"], "must be a string"),
    ],
)
def test_what_is_no_requirement_is_refused(as_alice, script, text, problem):
    script("print(1)")
    body = {"name": "fit", "entry": "train.py", "requirements": text}
    refusal = as_alice.refused("post", "users/alice/jobs", body)
    assert refusal.startswith("requirements: ")
    assert problem in refusal


@pytest.mark.long
def test_without_a_network_packages_come_from_a_folder_only(submit, until, settings):
    until(submit(USES, requirements="colours==1.0", network="none"), "finished")
    settings.PIP_INDEX_URL = "https://index.test/simple"
    job = until(submit(USES, "second", requirements="colours==1.0", network="none"), "error")
    assert "network policy" in job.reason


def test_the_index_is_given_to_pip_and_nothing_else(settings, submit):
    settings.PIP_INDEX_URL = "https://index.test/simple"
    settings.PIP_EXTRA_INDEX_URL = ["https://one.test/simple", "https://two.test/simple"]
    settings.PIP_PROXY = "http://proxy.test:3128"
    job = submit(USES, requirements="colours==1.0")
    need = building.Need(job.user, "colours==1.0\n", "python", job.cpu, job.ram, job.network_policy, 0)
    spec = building._spec(need.environment, need)
    assert spec.environment["PIP_INDEX_URL"] == "https://index.test/simple"
    assert spec.environment["PIP_EXTRA_INDEX_URL"] == "https://one.test/simple https://two.test/simple"
    assert spec.environment["PIP_PROXY"] == "http://proxy.test:3128"
    assert "MLP_TOKEN" not in spec.environment
    assert spec.environment["UV_LINK_MODE"] == "hardlink"
    assert (spec.owner, spec.network, spec.cpu, spec.ram_mib) == (job.user_id, job.network_policy, job.cpu, job.ram)


def test_what_others_have_too_shares_no_file_with_the_cache(submit):
    """What a later installation of its author executes could write through a link."""
    job = submit(USES, requirements="colours==1.0")
    need = building.Need(job.user, "# paint@1\ncolours\n", "python", 1, 512, "open", 0, is_shared=True)
    assert building._spec(need.environment, need).environment["UV_LINK_MODE"] == "copy"


def slow(wheels, tmp_path) -> None:
    """Add a source package whose set-up takes for ever."""
    folder = tmp_path / "endless-1.0"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n')
    (folder / "b.py").write_text("import time\nwhile True: time.sleep(0.05)\n")
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: endless\nVersion: 1.0\n")
    with tarfile.open(wheels / "endless-1.0.tar.gz", "w:gz") as archive:
        archive.add(folder, "endless-1.0")


def running() -> list[str]:
    return [
        name
        for name in runners.get().names()
        if name.startswith("pkg-") and runners.get().poll(name).state == "running"
    ]


def test_an_installation_ends_with_its_job(submit, tasks, wheels, tmp_path, as_alice):
    slow(wheels, tmp_path)
    submit(USES, requirements="endless")
    eventually(lambda: (tasks.run(), reconcile.run(), running())[-1])
    page = as_alice.call("get", "users/alice/jobs/fit").json()
    assert page["state"] == "creating"
    as_alice.call("put", "users/alice/jobs/fit:cancel")
    eventually(
        lambda: (tasks.run(), reconcile.run(), not [n for n in runners.get().names() if n.startswith("pkg-")])[-1], 120
    )
    job = Job.objects.get(name="fit")
    assert job.reason == "cancelled"
    assert store.Environment(job.user_id, job.packages).failure() is None


@pytest.mark.long
def test_an_installation_has_a_time_limit(submit, until, settings, wheels, tmp_path):
    slow(wheels, tmp_path)
    settings.PACKAGES_TIMEOUT_S = 1
    job = until(submit(USES, requirements="endless"), "error")
    assert job.reason.startswith("the installation of its packages took longer than 1 s")


@pytest.mark.long
def test_packages_have_a_size_limit(submit, until, settings, wheels):
    wheel(wheels, "large", "1.0", more=4)
    settings.PACKAGES_MIB = 1
    job = until(submit(USES, requirements="large"), "error")
    assert "MiB" in job.reason
    assert not any(store.top().rglob("large.py"))


# --- what is kept ----------------------------------------------------------------------------------------------------
def used(job: Job, days_ago: float) -> store.Environment:
    found = store.Environment(job.user_id, job.packages)
    at = time.time() - days_ago * 86400
    os.utime(found.folder / store.READY, (at, at))
    return found


@pytest.mark.long
def test_what_was_not_used_for_long_is_removed_and_installed_again(submit, until, settings):
    settings.PACKAGES_DAYS = 7
    found = used(until(submit(USES, requirements="colours==1.0"), "finished"), 8)
    building.evict()
    assert not found.folder.exists()
    until(submit(USES, "second", requirements="colours==1.0"), "finished")
    assert found.is_ready
    building.evict()
    assert found.is_ready


@pytest.mark.long
def test_nothing_is_left_of_a_failed_installation(submit, until, monkeypatch):
    job = until(submit(USES, requirements="colours==9.9"), "error")
    found = store.Environment(job.user_id, job.packages)
    assert not found.work.exists()
    building.evict()
    assert found.log.is_file()
    monkeypatch.setattr(building, "KEPT_S", -60)
    building.evict()
    assert not found.folder.exists()


@pytest.mark.long
def test_the_least_recently_used_ones_go_where_a_user_has_no_room(submit, until, settings):
    first = used(until(submit(USES, requirements="colours==1.0"), "finished"), 2)
    second = used(until(submit(USES, "second", requirements="colours==2.0"), "finished"), 1)
    settings.PACKAGES_USER_MIB = sum(mib for environment, _used, mib in store.everything() if environment == second)
    building.evict()
    assert (first.is_ready, second.is_ready) == (False, True)


@pytest.mark.long
def test_those_of_a_live_job_and_of_nobody(submit, until, alice):
    job = until(submit(USES, requirements="colours==1.0"), "finished")
    found = used(job, 400)
    Job.objects.filter(pk=job.pk).update(state="running")
    building.evict()
    assert found.is_ready
    Job.objects.filter(pk=job.pk).update(state="finished")
    used(job, 0)
    accounts.deregister(username="alice", by="alice")
    building.evict()
    assert not found.folder.exists()


@pytest.mark.long
def test_a_rerun_a_clone_and_the_form_take_the_packages_over(submit, until, as_alice, client, alice):
    until(submit(USES, requirements="colours==1.0"), "finished")
    made = as_alice.call("post", "users/alice/jobs/fit:rerun", {})
    assert Job.objects.get(name=made.json()["name"]).requirements == "colours==1.0"
    client.force_login(alice)
    assert "colours==1.0" in client.get("/jobs?from=fit").content.decode()
    page = client.get("/jobs/fit").content.decode()
    assert "colours==1.0" in page


@pytest.mark.long
def test_many_callers_at_once_start_it_once(submit, monkeypatch, tasks):
    job = submit(USES, requirements="colours==1.0")
    tasks.queue.clear()
    Job.objects.filter(pk=job.pk).update(not_before=job.created)
    job = Job.objects.select_related("user", "tenant", "snapshot").get(pk=job.pk)
    problems: list[Exception] = []

    def work() -> None:
        try:
            end = time.monotonic() + LIMIT_S
            while building.ensure_for_job(job) is None and time.monotonic() < end:
                time.sleep(0.02)
        except Exception as problem:
            problems.append(problem)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert store.environment_of(job.user_id, "colours==1.0\n", "python").installed() == ["colours==1.0"]


@pytest.mark.long
def test_on_a_cluster_they_are_installed_by_a_pod_of_the_jobs_image(settings, tmp_path, submit, until):
    settings.RUN_GATEWAY_URL = "http://10.0.0.7:30001"
    with platform_on_cluster(settings, tmp_path, images={"python": "registry.test/python:1"}):
        job = until(submit(USES, requirements="colours==1.0"), "finished")
        assert log().startswith("1.0 True")
        environment = store.Environment(job.user_id, job.packages)
        assert environment.is_ready
        settings.MLP_K8S = settings.MLP_K8S | {"images": {"python": "registry.test/python:2"}}
        runners._runner.cache_clear()
        assert store.environment_of(job.user_id, "colours==1.0\n", "python") != environment


def test_links_that_an_installation_has_left_are_not_followed(alice):
    """What a package's set-up executes may put anything into the folder: here a list, then the environment itself."""
    secret = storage.root() / "run" / "secret"
    storage.write_atomic(secret, b"forbidden")
    environment = store.Environment(alice.pk, "0" * 32)
    environment.note_base("", "", "colours")
    environment.tree.mkdir(parents=True)
    (environment.work / store.LIST).symlink_to(secret)
    assert environment.installed() == []
    (environment.work / store.LIST).unlink()
    (environment.work / store.LIST).write_text("colours==1.0\n")
    assert environment.installed() == ["colours==1.0"]
    environment.tree.rmdir()
    environment.tree.symlink_to(storage.root())
    building.settle(environment, runners.RunStatus("exited", exit_code=0))
    assert not environment.is_ready
    assert "a symbolic link" in environment.failure()[0]
    assert not environment.work.exists()
