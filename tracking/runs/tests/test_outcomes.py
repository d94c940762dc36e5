"""How a job has ended is what was recorded of its end, whatever the reason says."""

from __future__ import annotations

import pytest

from jobs.models import Job

pytestmark = pytest.mark.django_db


@pytest.fixture
def ended(runs):
    """Let c fail with a reason that begins as that of a cancel, and b be pruned."""
    Job.objects.filter(name="c").update(reason="cancelled by the driver: out of memory", outcome="failed")
    Job.objects.filter(name="b").update(state="error", reason="ended early at step 3", outcome="pruned")
    return runs


@pytest.mark.parametrize(("state", "names"), [("failed", ["c"]), ("cancelled", ["d"]), ("pruned", ["b"])])
def test_lists_pages_and_rest_tell_the_ends_apart(client, as_alice, alice, ended, state, names):
    client.force_login(alice)
    for question in (f"state={state}", f"filter=state+%3D+{state}"):
        answer = as_alice.call("get", f"users/alice/runs?{question}").json()
        assert [run["name"] for run in answer["runs"]] == names
    (name,) = names
    job = as_alice.call("get", f"users/alice/jobs/{name}").json()
    assert (job["state"], job["outcome"]) == ("error", state)
    for page in ("/jobs", f"/jobs/{name}"):
        assert f'class="state state-{"error" if state == "failed" else state}" data-state>{state}<' in (
            client.get(page).content.decode()
        )


def test_a_pruned_job_shows_no_progress(client, alice, ended):
    Job.objects.filter(name="b").update(progress=100)
    client.force_login(alice)
    rows = client.get("/jobs?state=pruned").content.decode()
    assert "ended early at step 3" in rows
    assert "100 %" not in rows
