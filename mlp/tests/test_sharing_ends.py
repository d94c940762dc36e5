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
from datasets.models import Dataset
from jobs import environment, launching
from jobs.models import Job, Project, RunMetric, RunParam
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.tiers import few, later
from resources.models import Tenant

from .page_world import fill, markup, visible_text, visitor
from .test_sharing import rest_reads, row_of, share, shared_pages

pytestmark = pytest.mark.django_db


OTHER_WAYS = ("end date", "his tenant", "her tenant", "trash", "owner", "deleted")


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


@pytest.fixture(scope="module")
def files(keep_files):
    return keep_files(fill)


@pytest.fixture
def filled(files, alice):
    files()
    return alice


@pytest.mark.parametrize(
    ("how", "most"),
    few([("revoked", None), *((how, 3) for how in OTHER_WAYS)] + [later(how, None) for how in OTHER_WAYS], 2),
)
def test_nothing_of_a_job_is_read_once_the_right_has_ended(filled, alice, bob, as_bob, how, most):
    """Try pages, files, REST, the form that clones and the websocket's check, with sessions that have read before. Try
    all addresses with one way to end a right, and some with each, which all is decided in one place.
    """
    job = row_of("job", alice)
    guest = visitor()
    audience = "tenant" if how.endswith("tenant") else "user"
    person = {"tenant": alice.tenant} if audience == "tenant" else {"user": bob}
    share(job, audience=audience, right="clone", **person)
    link = share(job, audience="link", token_hash="x", expires=timezone.now() + timedelta(days=1))
    session = guest.session
    session["links"] = [link.pk]
    session.save()
    hers, pages = visitor(bob), [page for page in shared_pages()["job"] if "diff" not in page][:most]
    calls = [call for call in rest_reads()["job"] if "diff" not in call][:most]
    before = [hers.get(page).status_code for page in pages]
    assert before.count(200) > (7 if most is None else 1)
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
    for name, project, trashed in (("shown", vision, None), ("gone", vision, timezone.now()), ("own", None, None)):
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


def test_a_clone_has_arguments_and_resources_and_says_which_dataset_is_missing(filled, bob, as_bob, home):
    job, digits, hers = row_of("job", filled), row_of("dataset", filled), visitor(bob)
    Job.objects.filter(pk=job.pk).update(args=["--lr", "0.5"], datasets=["digits"], cpu=2, env={"SECRET": "hush"})
    share(job, user=bob)
    assert "--lr" not in hers.get("/jobs?from=alice/fit").content.decode()  # to read is not to clone
    Share.objects.update(right="clone")
    assert "?from=alice/fit" in hers.get("/u/alice/jobs/fit").content.decode()
    form = hers.get("/jobs?from=alice/fit")
    assert "Not shared with you for jobs: alice/digits" in visible_text(form)
    assert markup(form).values["args"] == "--lr 0.5"
    assert "hush" not in form.content.decode()
    body = {"name": "mine", "entry": "train.py", "datasets": ["alice/digits"]}
    (storage.home_dir("bob") / "train.py").write_text("pass")
    assert "no dataset alice/digits is shared with you" in as_bob.refused("post", "users/bob/jobs", body)
    given = share(digits, user=bob, right="clone")
    page = hers.get("/jobs?from=alice/fit").content.decode()
    assert "Not shared with you" not in page
    assert re.search(r'value="alice/digits"\s+checked', page)
    response = as_bob.call("post", "users/bob/jobs", body)
    assert (response.status_code, response.json()["datasets"]) == (201, ["alice/digits"])
    assert "/u/alice/datasets/digits" in hers.get("/jobs/mine").content.decode()
    mine = Job.objects.get(name="mine")
    mine.run_name = "job-1-1"
    mounted = {mount.target: mount.source for mount in environment.run_spec(mine, bob).mounts}
    files = [path.name for path in storage.dataset_dir("alice", "digits").iterdir()]
    assert files != []
    assert {path.name for path in mounted["/datasets/digits"].iterdir()} == set(files)
    twice = {**body, "name": "more", "datasets": ["alice/digits", "digits"]}
    put(Dataset, bob, "digits", "ready")
    assert "two of them are named digits" in as_bob.refused("post", "users/bob/jobs", twice)
    Share.objects.filter(pk=given.pk).update(revoked=timezone.now())
    assert launching.RUNS.prepare(Job.objects.get(name="mine")) is False
    assert "no longer shared with you" in Job.objects.get(name="mine").reason
