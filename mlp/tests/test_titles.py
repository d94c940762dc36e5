"""Titles of datasets, models and applications: by REST, in forms, on pages, in the search and in the trash."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.models import Application
from datasets.models import Dataset
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import markup, visible_text, visitor
from models_app.models import Model

pytestmark = pytest.mark.django_db
TITLE = "ImageNet 2012 <b> 训练"
KINDS = {"datasets": Dataset, "models": Model, "apps": Application}


@pytest.fixture
def alice_client(alice, home):
    return visitor(alice)


@pytest.mark.parametrize("kind", KINDS)
def test_the_owner_changes_it_by_rest_and_on_the_page(alice_client, alice, as_alice, as_bob, kind):
    put(KINDS[kind], alice, "photos", "ready")
    address, page = f"users/alice/{kind}/photos", f"/{kind}/photos"
    assert as_alice.call("put", f"{address}:edit", {"title": f" {TITLE} "}).json()["title"] == TITLE
    assert as_alice.call("get", address).json()["title"] == TITLE
    for shown in (page, f"/{kind}", f"/{kind}?q=NET 2012", "/search?q=net 2012"):
        assert TITLE in visible_text(alice_client.get(shown)), shown
    assert markup(alice_client.get(page)).values["title"] == TITLE
    assert alice_client.post(f"{page}/title", {"title": "second"})["Location"] == page
    assert "at most 200" in visible_text(alice_client.post(f"{page}/title", {"title": "x" * 201}, follow=True))
    assert as_alice.refused("put", f"{address}:edit", {"title": "a\nb"}).startswith("title: ")
    assert as_bob.call("put", f"{address}:edit", {"title": "mine"}).status_code == 403
    assert KINDS[kind].objects.get(name="photos").title == "second"
    assert alice_client.post(f"/{kind}/none/title", {"title": "x"}).status_code == 404


def test_the_form_makes_the_name_of_a_dataset(alice_client, as_alice):
    assert alice_client.post("/datasets", {"title": TITLE, "size": "5"})["Location"] == "/datasets/imagenetb"
    assert alice_client.post("/datasets", {"title": "训练", "size": "5"})["Location"] == "/datasets/dataset"
    dataset = as_alice.call("post", "users/alice/datasets", {"name": "a.b", "title": TITLE, "size": 1}).json()
    assert (dataset["name"], dataset["title"]) == ("a.b", TITLE)


def test_the_forms_make_the_names_of_a_model_and_an_application(alice_client, alice):
    file = SimpleUploadedFile("net.pt", b"weights")
    assert alice_client.post("/models", {"title": "训练", "file": file})["Location"] == "/models/model"
    assert Model.objects.get().title == "训练"
    put(Model, alice, "net", "ready")
    form = {"title": "训练", "model_name": "net", "cpu": "1", "gpu": "0", "ram": "512"}
    assert alice_client.post("/apps", form)["Location"] == "/apps/app"
    assert Application.objects.get().title == "训练"


def test_the_trash_shows_it(alice_client, alice):
    put(Dataset, alice, "photos", "ready")
    Dataset.objects.update(title=TITLE)
    assert TITLE in visible_text(alice_client.post("/datasets/photos/delete", follow=True))
    assert TITLE in visible_text(alice_client.get("/trash"))
