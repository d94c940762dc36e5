"""The life cycle of models through REST, with real load checks."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import signal
import zipfile
from datetime import timedelta

import pytest
from django.utils import timezone

import runners
from kernel import copying, storage
from kernel.tests.nats_tools import until
from mlp.tests.tiers import few
from models_app import reconcile
from models_app.models import Model
from resources.models import Tenant

from .conftest import ADDER

pytestmark = pytest.mark.django_db(transaction=True)


def rom() -> int:
    return Tenant.objects.get(name="default").rom_inuse


def test_an_uploaded_predictor_becomes_ready_with_checksum_and_signature(as_alice, uploaded, make_model, settled):
    settled(make_model(uploaded("net/predictor.py")))
    model = as_alice.call("get", "users/alice/models/net").json()
    assert (model["state"], model["reason"], model["format"]) == ("ready", "", "predictor")
    assert model["size"] == len(ADDER)
    assert model["checksums"] == {
        "predictor.py": {"size": len(ADDER), "sha256": hashlib.sha256(ADDER.encode()).hexdigest()}
    }
    assert model["signature"]["inputs"][0]["name"] == "x"
    assert (storage.model_dir("alice", "net") / "predictor.py").read_text() == ADDER
    assert rom() == len(ADDER)
    assert [row["name"] for row in as_alice.call("get", "users/alice/models?state=ready").json()] == ["net"]


def test_delete_removes_files_and_row_and_releases_the_space(as_alice, uploaded, make_model, settled, tasks):
    settled(make_model(uploaded("predictor.py")))
    assert as_alice.call("delete", "users/alice/models/net").json()["state"] == "deleting"
    tasks.run()
    assert not Model.objects.exists()
    assert not storage.model_dir("alice", "net").exists()
    assert rom() == 0


def test_a_model_is_not_deleted_during_its_creation(as_alice, uploaded, make_model):
    make_model(uploaded("predictor.py"))
    assert as_alice.refused("delete", "users/alice/models/net").startswith("state:")


def test_one_file_is_downloaded_unchanged_and_several_as_a_zip(as_alice, uploaded, make_model, settled):
    uploaded("net/predictor.py")
    uploaded("net/weights/a.bin", b"\0\1\2")
    settled(make_model("home/net/predictor.py", name="one"))
    settled(make_model("home/net", name="two"))
    response = as_alice.call("get", "users/alice/models/one/download")
    assert b"".join(response.streaming_content) == ADDER.encode()
    assert response["Content-Type"] == "application/octet-stream"  # as the reference says, whatever the file's name
    two = as_alice.call("get", "users/alice/models/two/download")
    with zipfile.ZipFile(io.BytesIO(b"".join(two.streaming_content))) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["predictor.py", "weights/a.bin"]
        assert archive.read("weights/a.bin") == b"\0\1\2"


@pytest.mark.parametrize(
    ("text", "words"),
    few(
        [
            ("raise ValueError('odd weights')", "ValueError: odd weights"),
            ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "does not load"),
            ("x = 1", "no class Predictor"),
        ],
        1,
    ),
)
def test_a_model_that_does_not_load_is_an_error_with_the_reason(as_alice, uploaded, make_model, settled, text, words):
    model = settled(make_model(uploaded("predictor.py", text)))
    assert model.state == "error"
    assert words in as_alice.call("get", "users/alice/models/net").json()["reason"]
    assert as_alice.call("delete", "users/alice/models/net").status_code == 200


def test_a_model_that_loops_at_load_ends_in_error(uploaded, make_model, settled, settings):
    settings.MODEL_CHECK_S = 2
    model = settled(make_model(uploaded("predictor.py", "while True: pass")))
    assert (model.state, model.reason) == ("error", "did not load within 2 s")


WAITING = """
import os, time
while not os.path.exists(os.environ["MLP_MODEL"] + "/go"):
    time.sleep(0.05)
"""


@pytest.mark.parametrize("hours", few([1, -1], 1))
def test_a_check_goes_on_when_the_clock_is_set(uploaded, make_model, settled, tasks, hours):
    model = make_model(uploaded("net/predictor.py", WAITING + ADDER).removesuffix("/predictor.py"))
    until(lambda: tasks.run_once() or runners.get().poll(f"model-{model.pk}").state == "running")
    Model.objects.update(run_ordered=timezone.now() - timedelta(hours=hours))
    reconcile.run()
    model.refresh_from_db()
    assert (model.state, model.reason) == ("creating", "")
    (storage.model_dir("alice", "net") / "go").touch()
    assert settled(model).state == "ready"


def test_a_check_that_was_lost_is_repeated(uploaded, make_model, settled, tasks):
    """Its processes were killed, as they are with the machine: that says nothing about the model."""
    model = make_model(uploaded("net/predictor.py", WAITING + ADDER).removesuffix("/predictor.py"))
    run = storage.root() / "run" / "runs" / f"model-{model.pk}"
    until(lambda: tasks.run_once() or (run / "begun.json").exists())
    os.kill(json.loads((run / "begun.json").read_text())["shim"], signal.SIGKILL)
    until(lambda: runners.get().poll(run.name).state == "lost")
    (storage.model_dir("alice", "net") / "go").touch()
    assert settled(model).state == "ready"


NO_SPACE = """
import errno, os
if not os.path.exists(os.environ["MLP_MODEL"] + "/go"):
    raise OSError(errno.ENOSPC, "No space left on device")
"""


def test_a_check_for_which_the_disk_was_full_is_repeated(uploaded, make_model, settled, tasks):
    """That, too, says nothing about the model."""
    model = make_model(uploaded("net/predictor.py", NO_SPACE + ADDER).removesuffix("/predictor.py"))
    run = storage.root() / "run" / "runs" / f"model-{model.pk}"
    until(lambda: tasks.run_once() or (run / "exit.json").exists())
    (storage.model_dir("alice", "net") / "go").touch()
    assert settled(model).state == "ready"


def test_a_model_that_takes_all_memory_at_load_ends_in_error(uploaded, make_model, settled, monkeypatch):
    monkeypatch.setattr("models_app.launching.CHECK_RAM_MIB", 300)
    text = "held = []\nwhile True: held.append(bytearray(b'x' * (8 << 20)))"
    model = settled(make_model(uploaded("predictor.py", text)))
    assert model.state == "error"
    assert "emory" in model.reason


UNPICKLED_HERE = []


class Trap:
    """An object whose unpickling in this process is recorded; the check's run prints its process id."""

    def __reduce__(self):
        text = "import os, sys; print('unpickled by', os.getpid()); m = sys.modules.get('models_app.tests.test_models')"
        return (exec, (text + "\nif m: m.UNPICKLED_HERE.append(1)",))


def test_a_pickle_is_opened_by_a_separate_run_only(uploaded, make_model, settled):
    model = settled(make_model(uploaded("model.pkl", pickle.dumps(Trap()))))
    assert model.state == "error"
    assert "cannot predict" in model.reason  # what exec gives is no estimator
    assert "unpickled by" in model.reason
    assert f"unpickled by {os.getpid()}" not in model.reason
    assert UNPICKLED_HERE == []


def test_links_are_not_followed(as_alice, home, uploaded, make_model, settled):
    uploaded("net/predictor.py")
    os.symlink("/etc/passwd", home / "net" / "leak")
    os.symlink("/etc", home / "way")
    settled(make_model("home/net"))
    assert sorted(Model.objects.get().checksums) == ["predictor.py"]
    assert as_alice.refused("post", "users/alice/models", {"name": "x", "src": "home/way/passwd"}).startswith("src:")


@pytest.mark.parametrize("now", [ADDER[:-10], ADDER + "# more", ""], ids=["shrank", "grew", "empty"])
def test_files_that_change_before_they_are_copied_cause_an_error(as_alice, uploaded, make_model, settled, now):
    """The size differs from the reserved one, and the requested files are gone."""
    src = uploaded("net/predictor.py")
    created = make_model(src)
    uploaded("net/predictor.py", now)
    model = settled(created)
    assert model.state == "error"
    assert "changed" in str(model.reason)


def test_a_file_that_shrinks_during_the_copy_counts_with_its_read_size(uploaded, home, monkeypatch):
    uploaded("net/w.bin", b"x" * 5000)
    read, target = os.read, storage.model_dir("alice", "net")

    def shrinking(file, count):
        os.truncate(home / "net" / "w.bin", 1000)
        return read(file, count)

    monkeypatch.setattr("kernel.copying.os.read", shrinking)
    assert copying.copy(home / "net", target, 5000) == {
        "w.bin": {"size": 1000, "sha256": hashlib.sha256(b"x" * 1000).hexdigest()}
    }
    assert (target / "w.bin").read_bytes() == b"x" * 1000


@pytest.mark.parametrize(
    "src",
    few(
        ["", "home", "home/", "jobs", "jobs/", "jobs/fit/", "jobs/FIT", "home/../x", "/etc", "jobs/none", "home/no"], 4
    ),
)
def test_a_wrong_source_is_refused(as_alice, src):
    assert as_alice.refused("post", "users/alice/models", {"name": "net", "src": src}).startswith("src:")


def test_names_are_unique_and_others_see_nothing(as_alice, as_bob, uploaded, make_model):
    src = uploaded("predictor.py")
    make_model(src)
    assert as_alice.refused("post", "users/alice/models", {"name": "net", "src": src}).startswith("name:")
    assert as_bob.refused("get", "users/alice/models/net") == as_bob.refused("get", "users/alice/models/none")
    assert as_alice.refused("get", "users/alice/models/net/download").startswith("state:")


def test_missing_space_is_refused_and_stores_nothing(as_alice, uploaded):
    Tenant.objects.update(rom=5)
    assert as_alice.refused("post", "users/alice/models", {"name": "net", "src": uploaded("p.pt")}).startswith("rom:")
    assert not Model.objects.exists()
