"""Sharing, attacked: nothing is read after the right has ended, and nothing of what is beside the shared object."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import Share, User
from accounts.sharing import access
from conftest import move
from jobs.models import Job, Project, RunMetric, RunParam
from mlp.operators.tests.admin_world import put
from resources.models import Tenant

from .page_world import fill, visible_text, visitor
from .test_sharing import rest_reads, row_of, share, shared_pages
from .tiers import later

pytestmark = pytest.mark.django_db


def ways_out(job, bob):
    """Return how bob may cease to read alice's job, by what happens."""
    now, other = timezone.now(), Tenant.objects.create(name="elsewhere")
    mine = Share.objects.filter(object_id=job.pk)
    return {
        "end date": lambda: mine.update(expires=now),
        "revoked": lambda: mine.update(revoked=now),
        "his tenant": lambda: move(bob, other),
        "her tenant": lambda: move(job.user, other),
        "trash": lambda: Job.objects.filter(pk=job.pk).update(trashed=now),
        "owner": lambda: accounts.deregister(username="alice", by="test"),
        "deleted": lambda: job.delete(),
    }


@pytest.mark.parametrize(
    "how", ["end date", *map(later, ("revoked", "his tenant", "trash", "owner", "deleted")), "her tenant"]
)
def test_nothing_of_a_job_is_read_once_the_right_has_ended(alice, bob, as_bob, how):
    """Try pages, files, REST, the form that clones and the websocket's check, in sessions that have read before."""
    fill(alice)
    job = row_of("job", alice)
    guest = visitor()
    audience = "tenant" if how.endswith("tenant") else "user"
    person = {"tenant": alice.tenant} if audience == "tenant" else {"user": bob}
    share(job, audience=audience, right="clone", **person)
    link = share(job, audience="link", token_hash="x", expires=timezone.now() + timedelta(days=1))
    session = guest.session
    session["links"] = [link.pk]
    session.save()
    hers, pages = visitor(bob), [page for page in shared_pages()["job"] if "diff" not in page]
    calls = [call for call in rest_reads()["job"] if "diff" not in call]
    before = [hers.get(page).status_code for page in pages]
    assert before.count(200) > 7
    assert guest.get(pages[0]).status_code == before[0]
    ways_out(job, bob)[how]()
    assert {hers.get(page).status_code for page in pages} == {404}
    if not how.endswith("tenant"):
        assert {guest.get(page).status_code for page in pages} == {302}
        assert {guest.get(call).status_code for call in calls} == {403}
    assert {hers.get(call).json()["msg"] for call in calls} == {"job: no such job"}
    assert {as_bob.refused("get", call.removeprefix("/api/v1/")) for call in calls} == {"job: no such job"}
    assert "alice/fit is shared with you" in visible_text(hers.get("/jobs?from=alice/fit"))
    assert hers.get("/u/alice/compare?job=fit").status_code == 404
    assert not access.may_read(access.Visitor(User.objects.get(pk=bob.pk)), Job, job.pk or 0, alice.pk)
    assert "/u/alice/jobs/fit" not in hers.get("/shared").content.decode()


def test_a_reader_of_a_project_learns_nothing_of_the_trash_and_of_other_runs(alice, bob):
    vision = Project.objects.create(user=alice, name="vision")
    Project.objects.create(user=alice, name="elsewhere")
    for name, project, trashed in (("fit", vision, None), ("gone", vision, timezone.now()), ("own", None, None)):
        job = put(Job, alice, name, "finished")
        Job.objects.filter(pk=job.pk).update(project=project, trashed=trashed)
        RunParam.objects.create(job=job, user=alice, name=f"lr_{name}", text="1", number=1)
        RunMetric.objects.create(job=job, user=alice, name=f"loss_{name}", last=1, min=1, max=1, count=1, step=1)
    share(vision, user=bob)
    hers, mine = visitor(bob), visitor(alice)
    for query in ("", "?trash=1", "?filter=lr_ow%3D1", "?filter=loss_ow%3E0"):
        page = hers.get(f"/u/alice/projects/vision{query}")
        words = visible_text(page) + " ".join(re.findall('value="([^"]*)"', page.content.decode()))
        assert (page.status_code, re.findall("gone|lr_own|loss_own|elsewhere", words)) == (200, [])
    assert "loss_own" in visible_text(mine.get("/projects/vision"))
    assert "lr_own" in visible_text(mine.get("/projects/vision?filter=lr_ow%3D1"))
