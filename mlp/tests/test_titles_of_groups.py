"""Titles of projects and registered models: by REST, in forms, on pages, in selections, the search and exports."""

from __future__ import annotations

import pytest

from jobs.models import Job, Project
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import markup, visible_text, visitor
from models_app.models import RegisteredModel

pytestmark = pytest.mark.django_db
TITLE = "ResNet/50 <b> 训练: #3"
USERS = "users/alice"


@pytest.fixture
def pages(alice, home):
    return visitor(alice)


def test_a_project_is_titled_by_rest_and_on_its_page(pages, as_alice):
    project = as_alice.call("post", f"{USERS}/projects", {"name": "vision", "title": f" {TITLE} "}).json()
    assert (project["name"], project["title"]) == ("vision", TITLE)
    for page in ("/projects", "/projects/vision", "/search?q=net/50", "/search?q=VISION"):
        assert TITLE in visible_text(pages.get(page)), page
    assert markup(pages.get("/projects/vision")).values["title"] == TITLE
    at = f"{USERS}/projects/{project['id']}"
    assert as_alice.call("put", at, {"readme": "x"}).json()["title"] == TITLE
    assert as_alice.refused("put", at, {"title": "a\nb"}).startswith("title: ")
    change = f"/project/{project['id']}/change"
    pages.post(change, {"do": "edit", "name": "vision", "title": "second", "readme": ""})
    assert as_alice.call("get", at).json()["title"] == "second"
    pages.post(change, {"do": "edit", "name": "vision", "readme": ""})
    assert as_alice.call("get", at).json()["title"] == "second"
    assert "at most 200" in visible_text(
        pages.post(change, {"do": "edit", "name": "vision", "title": "x" * 201}, follow=True)
    )
    assert "second" in visible_text(pages.post(change, {"do": "delete"}, follow=True))
    assert "/projects/vision" not in pages.get("/search?q=second").content.decode()


def test_the_form_makes_the_name_of_a_project(pages):
    assert pages.post("/projects", {"title": "lr = 0.1 #3"})["Location"] == "/projects/lr%20=%200.1%20%233"
    assert Project.objects.get(name="lr = 0.1 #3").title == ""  # the name says it
    pages.post("/projects", {"title": "//runs/../ of 2026/"})
    assert Project.objects.get(name="runs/of 2026").title == "//runs/../ of 2026/"
    pages.post("/projects", {"title": "/"})
    assert Project.objects.get(name="project").title == "/"
    assert "already have a project" in visible_text(pages.post("/projects", {"title": "lr = 0.1 #3"}, follow=True))


def test_tables_selections_and_exports_show_the_title_of_a_project(pages, alice):
    other = Project.objects.create(user=alice, name="vision", title=TITLE)
    put(Job, alice, "train", "finished")
    Job.objects.update(project=other)
    assert TITLE in visible_text(pages.get("/jobs/train"))
    assert TITLE in visible_text(pages.get("/jobs?col=name&col=project"))
    for page in ("/jobs", "/jobs/train"):
        assert f"{TITLE} (vision)" in visible_text(pages.get(page)), page
    table = pages.get("/runs/export.csv?col=name&col=project").getvalue().decode("utf-8-sig")
    assert table.splitlines()[0] == "name,title,project,project_title"
    assert table.splitlines()[1] == f"train,train,vision,{TITLE}"


def test_a_registered_model_is_titled_by_rest_and_on_its_page(pages, as_alice):
    registry = f"{USERS}/registry"
    model = as_alice.call("post", registry, {"name": "churn", "title": TITLE}).json()
    assert (model["name"], model["title"]) == ("churn", TITLE)
    page = "/registry/churn"
    for shown in (page, "/registry", "/registry?q=NET/50", "/search?q=net/50", f"{page}/compare"):
        assert TITLE in visible_text(pages.get(shown)), shown
    assert markup(pages.get(page)).values["title"] == TITLE
    assert as_alice.call("put", f"{registry}/churn", {"description": "x"}).json()["title"] == TITLE
    assert as_alice.call("put", f"{registry}/churn", {"title": "second"}).json()["title"] == "second"
    pages.post(f"{page}/change", {"do": "edit", "name": "churn", "title": "", "description": ""})
    assert RegisteredModel.objects.get().title == ""
    assert pages.post("/registry", {"title": TITLE})["Location"].startswith("/registry/ResNet-50")
    assert RegisteredModel.objects.get(title=TITLE).name == TITLE.replace("/", "-").replace(":", "-")
