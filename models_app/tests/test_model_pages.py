"""The pages of models: list, form, one model with its lineage and notes."""

from __future__ import annotations

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from apps.models import Application
from jobs.models import Job
from jobs.summaries import metrics as summaries
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import EVIL, fill, markup, visible_text, visitor
from mlp.tests.tiers import few
from models_app import sources
from models_app.choosing import FORMATS
from models_app.models import Model

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice_client(alice, home):
    return visitor(alice)


@pytest.fixture
def trained(alice):
    """A finished job of alice's with a model in its output."""
    job = put(Job, alice, "fit", "finished")
    reported = {"accuracy": 0.875, "loss": 0.25}
    summaries.add(job, [summaries.summary_of(name, [value], 3, timezone.now()) for name, value in reported.items()])
    folder = storage.job_dir("alice", "fit") / "ckpt"
    folder.mkdir(parents=True)
    for name in ("model.pt", "epoch.pt", "notes.txt"):
        (folder / name).write_bytes(b"not really")
    return job


def serve(model: Model, name: str = "calc") -> Application:
    return Application.objects.create(
        user=model.user, tenant=model.tenant, model=model, name=name, port=31000, reserved=False
    )


class TestCreation:
    def test_a_finished_jobs_output_is_proposed_as_a_model(self, alice_client, alice, trained):
        page = alice_client.get("/models?new=1")
        options = [attrs.get("value") for tag, attrs in markup(page).tags if tag == "option"]
        assert options[:2] == ["jobs/fit/ckpt/model.pt", "jobs/fit/ckpt/epoch.pt"]
        assert markup(alice_client.get("/models?src=jobs/fit/ckpt/model.pt")).values["name"] == "fit"
        put(Model, alice, "fit", "ready")
        assert markup(alice_client.get("/models?src=jobs/fit/ckpt/model.pt")).values["name"] == "fitb"

    def test_creating_leads_to_the_model_with_its_lineage(self, alice_client, trained):
        fields = {"name": "net", "src": "jobs/fit/ckpt/model.pt"}
        response = alice_client.post("/models", fields, follow=True)
        assert response.redirect_chain == [("/models/net", 302)]
        words = visible_text(response)
        for word in ("creating", "fit", "train.py", "0.875", "0.25", "Not deployed"):
            assert word in words
        assert Model.objects.get().src == fields["src"]

    def test_submitted_twice_it_is_created_once(self, alice_client, trained):
        fields = {"name": "net", "src": "jobs/fit", "mark": markup(alice_client.get("/models")).values["mark"]}
        for _ in range(2):
            assert alice_client.post("/models", fields)["Location"] == "/models/net"
        assert Model.objects.count() == 1

    @pytest.mark.parametrize(
        ("field", "typed", "words"),
        few(
            [
                ("name", "", "required"),
                ("name", EVIL, "1 to 50 lowercase letters"),
                ("name", "taken", "you already have a model named taken"),
                ("src", "", "required"),
                ("src", "jobs/none", "you have no job named none"),
                ("src", "jobs/runs", "its output is available once it has finished"),
                ("src", "home/../../etc/passwd", "not have an empty part"),
                ("src", EVIL, "jobs/{job}"),
            ],
            3,
        ),
    )
    def test_wrong_fields(self, alice_client, alice, trained, field, typed, words):
        put(Model, alice, "taken", "ready")
        put(Job, alice, "runs", "running")
        response = alice_client.post("/models", {"name": "net", "src": "jobs/fit", field: typed})
        assert response.status_code == 403
        assert words in visible_text(response)
        assert markup(response).values[field] == typed
        assert markup(response).inline == []
        assert list(Model.objects.values_list("name", flat=True)) == ["taken"]

    def test_other_users_files_are_neither_proposed_nor_accepted(self, alice_client, bob, trained):
        theirs = visitor(bob)
        assert "jobs/fit" not in theirs.get("/models?new=1").content.decode().replace("jobs/train", "")
        assert theirs.post("/models", {"name": "net", "src": "jobs/fit"}).status_code == 403


class TestSources:
    def test_the_known_suffixes_are_those_of_the_formats(self):
        assert set(sources.SUFFIXES) == set(FORMATS)

    @pytest.mark.parametrize(
        ("paths", "base", "expected"),
        [
            (["a.txt", "log.csv"], "jobs/fit", []),
            (["b/last.pt", "b/best.pt", "deep/er/model.onnx"], "jobs/fit",
             ["jobs/fit/deep/er/model.onnx", "jobs/fit/b/best.pt", "jobs/fit/b/last.pt"]),
            (["predictor.py", "weights.pt"], "jobs/fit", ["jobs/fit", "jobs/fit/weights.pt"]),
            (["net/predictor.py"], "home", ["home/net"]),
            (["predictor.py"], "home", ["home/predictor.py"]),
            (["lm/config.json", "lm/model.safetensors", "other/config.json"], "home", ["home/lm"]),
            (["config.json", "model.safetensors", "optimizer.pt"], "jobs/fit", ["jobs/fit", "jobs/fit/optimizer.pt"]),
            (["config.json", "model.safetensors"], "home", []),
        ],
    )  # fmt: skip
    def test_the_likeliest_source_comes_first(self, paths, base, expected):
        assert sources.of_files(paths, base) == expected


class TestDetail:
    def test_another_users_model_is_not_found(self, alice_client, bob):
        put(Model, bob, "theirs", "ready")
        assert alice_client.get("/models/theirs").status_code == alice_client.get("/models/none").status_code == 404
        for action in ("/models/theirs", "/models/theirs/delete"):
            assert alice_client.post(action, {"notes": "mine"}).status_code == 404
        assert Model.objects.get().notes == ""

    def test_a_deployed_model_is_not_deleted(self, alice_client, alice):
        model = put(Model, alice, "net", "ready")
        app = serve(model)
        shown = alice_client.get("/models/net")
        assert "calc" in visible_text(shown)
        assert re.search(r'<button class="danger" disabled title="The application calc uses', shown.content.decode())
        refused = visible_text(alice_client.post("/models/net/delete", follow=True))
        assert "The application calc uses this model. Delete it first." in refused
        assert "state:" not in refused, "a page names the object, not a field of REST"
        assert Model.objects.get().state == "ready"
        app.delete()
        assert 'class="danger" disabled' not in alice_client.get("/models/net").content.decode()
        assert alice_client.post("/models/net/delete")["Location"] == "/models"
        assert Model.objects.get().trashed is not None

    def test_the_reason_of_a_failure_is_shown(self, alice_client, alice):
        put(Model, alice, "net", "error")
        assert "for the test" in visible_text(alice_client.get("/models/net"))

    def test_a_deleted_job_is_named_without_a_link(self, alice_client, alice):
        fill(alice)
        Job.objects.filter(name="done").delete()
        page = alice_client.get("/models/net")
        assert "deleted" in visible_text(page)
        assert "/jobs/done" not in [attrs.get("href") for _tag, attrs in markup(page).tags]

    @pytest.mark.parametrize("fields", few([{}, {"lineage": {"metrics": {}}}, {"signature": {"inputs": [1, None, "x"]}},
                                      {"checksums": {}}, {"signature": {}}], 2))  # fmt: skip
    def test_any_metadata_is_shown(self, alice_client, alice, fields):
        put(Model, alice, "net", "ready")
        Model.objects.update(**fields)
        assert alice_client.get("/models/net").status_code == 200


class TestNotes:
    def test_markdown_is_rendered_and_stored_unchanged(self, alice_client, alice):
        put(Model, alice, "net", "ready")
        text = "# Digits\n\n- **good** at 7\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[more](https://example.org)"
        assert alice_client.post("/models/net", {"notes": text.replace("\n", "\r\n")})["Location"] == "/models/net"
        assert Model.objects.get().notes == text
        html = alice_client.get("/models/net").content.decode()
        for part in ("<h3>Digits</h3>", "<strong>good</strong>", "<td>1</td>", 'rel="nofollow noopener noreferrer"'):
            assert part in html

    @pytest.mark.parametrize(
        "text",
        [EVIL, "<script>x</script>", "[a](javascript:alert(1))", "![a](https://evil.example/x.png)",
             "<b onclick=x>", "[a](data:text/html,x)", "<style>*{}</style>", "<https://x.example/\"onmouseover=x>",
             "```<script>```"],
    )  # fmt: skip
    def test_notes_run_no_code(self, alice_client, alice, text):
        put(Model, alice, "net", "ready")
        alice_client.post("/models/net", {"notes": text})
        page = markup(alice_client.get("/models/net"))
        assert page.inline == []
        assert "evil.example" not in str([attrs.get("src") for _tag, attrs in page.tags])

    def test_notes_have_a_maximum_length(self, alice_client, alice):
        put(Model, alice, "net", "ready")
        response = alice_client.post("/models/net", {"notes": "x" * 20_001})
        assert response.status_code == 403
        assert Model.objects.get().notes == ""

    def test_notes_can_be_written_over_rest(self, as_alice, as_bob, alice):
        put(Model, alice, "net", "ready")
        assert as_alice.call("put", "users/alice/models/net/notes", {"notes": "good"}).json()["notes"] == "good"
        assert as_alice.refused("put", "users/alice/models/net/notes", {"notes": 1}).startswith("notes:")
        as_bob.refused("put", "users/alice/models/net/notes", {"notes": "bad"})
        assert Model.objects.get().notes == "good"


class TestUploading:
    """Without JavaScript; with it the file is sent to the data service (models.js)."""

    def test_a_file_becomes_the_source(self, alice_client):
        file = SimpleUploadedFile("my net (1).onnx", b"not really")
        assert alice_client.post("/models", {"name": "net", "src": "", "file": file})["Location"] == "/models/net"
        assert Model.objects.get().src == "home/models/net/my-net--1-.onnx"
        assert (storage.home_dir("alice") / "models/net/my-net--1-.onnx").read_bytes() == b"not really"

    @pytest.mark.parametrize("name", few(["../../x.pt", "..", "a/b.pt", "\x00.pt", "é.pt", "x" * 300 + ".pt"], 3))
    def test_unusual_file_names_stay_in_their_folder(self, alice_client, name):
        file = SimpleUploadedFile("placeholder", b"not really")
        file._name = name
        alice_client.post("/models", {"name": "net", "file": file})
        there = [path for path, _ in storage.files(storage.root() / "datasets") if not path.endswith("train.py")]
        assert all(path.startswith("alice/.home/models/net/") for path in there)

    @pytest.mark.parametrize(
        ("name", "words"), [("taken", "already have a model named taken"), ("../x", "1 to 50 lowercase")]
    )
    def test_nothing_is_stored_for_an_illegal_name(self, alice_client, alice, name, words):
        put(Model, alice, "taken", "ready")
        response = alice_client.post("/models", {"name": name, "file": SimpleUploadedFile("a.pt", b"x")})
        assert response.status_code == 403
        assert words in visible_text(response)
        assert not (storage.home_dir("alice") / "models").exists()
