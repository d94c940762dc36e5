"""The list of a user's environments: REST and page."""

from __future__ import annotations

import time

import pytest

import runners
from jobs import reconcile
from jobs.models import Job
from jobs.packages import store
from kernel import storage
from mlp.tests.patience import LIMIT_S

from .wheels import wheel

pytestmark = pytest.mark.django_db(transaction=True)

USES = "import colours, sys\nprint(colours.__version__)"
ENDLESS = USES + "\nimport time\nwhile True: time.sleep(0.1)"


@pytest.fixture(autouse=True)
def wheels(settings, tmp_path):
    folder = tmp_path / "wheels"
    wheel(folder, "colours", "1.0", requires=("hues",))
    wheel(folder, "hues", "0.3")
    settings.PIP_INDEX_URL = folder.as_uri()
    storage.remove(store.top())
    return folder


def listed(api) -> list[dict]:
    response = api.call("get", "users/alice/environments")
    assert response.status_code == 200, response.content
    assert response["X-Total-Count"] == str(len(response.json()))
    return response.json()


def test_it_says_what_is_installed_and_who_uses_it(submit, until, as_alice, as_bob):
    assert listed(as_alice) == []
    job = until(submit(USES, requirements="colours"), "finished")
    until(submit(USES, "second", requirements="colours  # again"), "finished")
    (row,) = listed(as_alice)
    assert (row["digest"], row["state"], row["requirements"]) == (job.packages, "ready", "colours\n")
    assert row["packages"] == ["colours==1.0", "hues==0.3"]
    assert row["used_by"] == [{"kind": "job", "name": "second"}, {"kind": "job", "name": "fit"}]
    assert row["created"] <= row["used"]
    assert row["size"] >= 1
    assert as_alice.call("get", f"users/alice/environments/{job.packages}").json() == row
    assert as_bob.call("get", "users/alice/environments").status_code == 403
    assert as_bob.call("delete", f"users/alice/environments/{job.packages}").status_code == 403
    assert as_bob.call("get", f"users/bob/environments/{job.packages}").status_code == 403


def test_a_failed_one_says_why_and_is_removed(submit, until, as_alice):
    job = until(submit(USES, requirements="colours==9.9"), "error")
    (row,) = listed(as_alice)
    assert (row["state"], row["packages"], row["used"]) == ("failed", [], None)
    assert "there is no version of colours==9.9" in row["reason"]
    assert as_alice.call("delete", f"users/alice/environments/{job.packages}").status_code == 200
    assert listed(as_alice) == []
    assert "environment" in as_alice.refused("delete", f"users/alice/environments/{job.packages}")


def test_what_a_job_needs_stays_and_what_was_removed_is_installed_again(submit, until, as_alice):
    job = until(submit(ENDLESS, requirements="colours"), "running")
    refusal = as_alice.refused("delete", f"users/alice/environments/{job.packages}")
    assert refusal == "state: the job fit uses this environment"
    as_alice.call("put", "users/alice/jobs/fit:cancel")
    until(job, "error")
    assert as_alice.call("delete", f"users/alice/environments/{job.packages}").status_code == 200
    assert not store.Environment(job.user_id, job.packages).folder.exists()
    assert until(submit(USES, "second", requirements="colours"), "finished").packages == job.packages


@pytest.mark.parametrize("digest", ["x", "0" * 31, "A" * 32, "..", "0" * 32])
def test_other_names_are_no_environments(as_alice, digest):
    assert as_alice.call("get", f"users/alice/environments/{digest}").status_code == 403


def test_an_installation_shows_pips_words_and_ends_when_its_environment_is_removed(
    submit, tasks, until, as_alice, wheels, monkeypatch
):
    job = submit(USES, requirements="colours")
    tasks.run_once()
    while not any(name.startswith("pkg-") for name in runners.get().names()):
        tasks.run_once()
        reconcile.run()
    (row,) = listed(as_alice)
    assert (row["state"], row["used"], row["packages"]) == ("building", None, [])
    assert "the job fit uses" in as_alice.refused("delete", f"users/alice/environments/{row['digest']}")
    as_alice.call("put", "users/alice/jobs/fit:cancel")
    until(Job.objects.get(pk=job.pk), "error")
    assert as_alice.call("delete", f"users/alice/environments/{row['digest']}").status_code == 200
    assert listed(as_alice) == []
    end = time.monotonic() + LIMIT_S
    while any(name.startswith("pkg-") for name in runners.get().names()):  # a killed one ends soon, not at once
        assert time.monotonic() < end
        reconcile.run()
    assert listed(as_alice) == []


@pytest.mark.long
def test_the_page_lists_them_and_removes_one(submit, until, as_alice, alice, client):
    job = until(submit(ENDLESS, requirements="colours"), "running")
    client.force_login(alice)
    page = client.get("/environments").content.decode()
    assert "colours==1.0\nhues==0.3" in page
    assert "colours==1.0\nhues==0.3" in client.get("/jobs/fit").content.decode()
    assert '<a href="/jobs/fit">fit</a>' in page
    assert "The job fit uses this environment" in page
    client.post(f"/environments/{job.packages}/delete")
    assert store.Environment(job.user_id, job.packages).is_ready
    as_alice.call("put", "users/alice/jobs/fit:cancel")
    until(job, "error")
    answer = client.post(f"/environments/{job.packages}/delete", follow=True).content.decode()
    assert "The environment is removed." in answer
    assert "No environments yet" in answer
