"""Saved comparisons: by REST and on pages, their settings, and what a share of one lets its readers see."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone

from accounts.models import Share
from jobs.models import Comparison, Job, RunMetric
from mlp.tests.page_world import EVIL, markup, visible_text, visitor
from tracking.compare import saved

pytestmark = pytest.mark.django_db
HERE = "users/alice/comparisons"


@pytest.fixture
def runs(alice, home):
    """Alice's jobs one, two and three."""
    jobs = [
        Job.objects.create(
            user=alice, tenant=alice.tenant, name=name, entry="train.py", state="finished", env={"KEY": "hush"}
        )
        for name in ("one", "two", "three")
    ]
    for at, job in enumerate(jobs):
        RunMetric.objects.create(job=job, user=alice, name="loss", last=at, min=at, max=at, count=1, step=1)
    return jobs


def test_rest(runs, as_alice, as_bob):
    query = "job=two&only=differences&axis=m%3Aloss&evil=1"
    response = as_alice.call("post", HERE, {"name": "best runs", "jobs": ["two", "one", "two"], "query": query})
    assert response.status_code == 201, response.content
    assert (response.json()["jobs"], response.json()["query"]) == (["two", "one"], "only=differences&axis=m%3Aloss")
    assert "already have" in as_alice.refused("post", HERE, {"name": "best runs", "jobs": ["one"]})
    changed = as_alice.call("put", f"{HERE}/best%20runs", {"jobs": ["three"]}).json()
    assert (changed["jobs"], changed["query"]) == (["three"], "only=differences&axis=m%3Aloss")
    Job.objects.filter(name="three").update(trashed=timezone.now())
    assert [row["jobs"] for row in as_alice.call("get", HERE).json()] == [[]]
    changed = as_alice.call("put", f"{HERE}/best%20runs", {"query": "axis=m%3Aloss"})
    assert (changed.status_code, changed.json()["query"]) == (200, "axis=m%3Aloss")
    Job.objects.filter(name="three").update(trashed=None)
    assert as_alice.call("get", f"{HERE}/best%20runs").json()["jobs"] == ["three"]
    Job.objects.filter(name="three").update(trashed=timezone.now())
    for body, says in (
        ({"name": "x", "jobs": []}, "jobs"),
        ({"name": "x", "jobs": ["three"]}, "jobs: you have no job named three"),
        ({"name": "x", "jobs": ["none"]}, "jobs: you have no job named none"),
        ({"name": "x", "jobs": ["one"], "query": "a" * 9000}, "query"),
        ({"name": "a/b", "jobs": ["one"]}, "name"),
        ({"name": "..", "jobs": ["one"]}, "name"),
        ({"name": " x", "jobs": ["one"]}, "name"),
        ({"name": "x" * 101, "jobs": ["one"]}, "name"),
    ):
        assert as_alice.refused("post", HERE, body).startswith(says), body
    assert as_bob.refused("get", f"{HERE}/best%20runs") == "comparison: no such comparison"
    assert as_bob.refused("post", "users/bob/comparisons", {"name": "x", "jobs": ["one"]}).startswith("jobs:")
    assert as_alice.call("delete", f"{HERE}/best%20runs").status_code == 200
    assert as_alice.refused("get", f"{HERE}/best%20runs") == "comparison: no such comparison"
    assert Job.objects.count() == 3


def test_the_pages(runs, alice):
    mine = visitor(alice)
    fields = {"name": "best", "job": ["two", "one"], "query": "job=two&only=differences", "next": "/compare?job=two"}
    assert mine.post("/comparisons", fields)["Location"] == "/comparisons/best"
    assert mine.post("/comparisons", fields)["Location"] == "/compare?job=two"
    assert "already have a comparison named best" in visible_text(mine.get("/compare?job=two"))
    assert mine.post("/comparisons", {**fields, "job": ["one", "three"], "replace": "1"}).status_code == 302
    page = mine.get("/comparisons/best")
    heads = re.findall('data-compared="([^"]*)"', page.text)
    assert (heads, 'aria-pressed="true"' in page.text) == (["one", "three"], True)
    assert 'aria-pressed="false"' in mine.get("/comparisons/best?only=all").text
    assert 'data-saved="only=differences"' in page.text
    assert '/share/comparison/best"' in page.text
    assert "best" in visible_text(mine.get("/compare"))
    assert mine.get("/comparisons/none").status_code == 404
    evil = saved.save(alice, name=EVIL.replace("/", ""), jobs=["one"])
    page = mine.get(f"/comparisons/{evil.name}")
    assert (page.status_code, markup(page).inline) == (200, [])
    runs[0].delete()
    assert mine.post("/comparisons", {"name": "best", "do": "delete"})["Location"] == "/compare"
    assert mine.get("/comparisons/best").status_code == 404
    assert mine.get("/compare/code?job=two&job=three")["Location"] == "/jobs/two/code/diff?with=three"


def test_a_shared_comparison_shares_its_runs_and_no_others(runs, alice, bob, as_bob, as_alice):
    mine, hers = visitor(alice), visitor(bob)
    saved.save(alice, name="best", jobs=["one", "two"])
    assert mine.post("/share/comparison/best", {"audience": "user", "user": "bob"}).status_code == 302
    page = hers.get("/u/alice/comparisons/best")
    assert (page.status_code, "Shared by alice, read only" in visible_text(page)) == (200, True)
    assert "hush" not in page.text
    assert not re.search("<form[^>]*/(comparisons|share)", page.text)
    for address in ("jobs/one", "jobs/two/log", "compare/logs?job=one&job=two", "jobs/one/code/diff?with=two"):
        assert hers.get(f"/u/alice/{address}").status_code == 200, address
    assert hers.get("/u/alice/jobs/three").status_code == 404
    assert "three" not in visible_text(hers.get("/u/alice/compare?job=one&job=three"))
    assert as_bob.call("get", f"{HERE}/best").json()["jobs"] == ["one", "two"]
    assert as_bob.call("get", "users/alice/jobs/one").json()["env"] != {"KEY": "hush"}
    for verb, body in (("put", {"jobs": ["one"]}), ("delete", None)):
        assert as_bob.refused(verb, f"{HERE}/best", body)
    assert [share["name"] for share in as_bob.call("get", "users/bob/shared_with_me?kind=comparison").json()] == [
        "best"
    ]
    as_alice.call("put", f"{HERE}/best", {"jobs": ["two", "three"]})
    assert [hers.get(f"/u/alice/jobs/{name}").status_code for name in ("one", "two", "three")] == [404, 200, 200]
    Job.objects.filter(name="two").update(trashed=timezone.now())
    assert "two" not in visible_text(hers.get("/u/alice/comparisons/best"))
    assert hers.get("/u/alice/jobs/two").status_code == 404
    as_alice.call("delete", f"{HERE}/best")
    assert hers.get("/u/alice/jobs/three").status_code == 404
    assert not Share.objects.exists()
    assert not Comparison.objects.exists()
