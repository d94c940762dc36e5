"""Model versions on disk and their rows: written completely or not at all, verified, switched atomically."""

from __future__ import annotations

import hashlib
import json
import secrets
from types import SimpleNamespace

import pytest

import runners
from accounts import lifecycle as accounts
from aiops import lifecycle, reconcile
from aiops.models import ModelVersion
from aiops.training import decisions, launching, versions
from aiops.wire import folders, kv
from mlp.tests.tiers import few
from opnilog.store import BadVersion, Versions


@pytest.fixture
def trained(tmp_path):
    """Return a function that writes a model as the trainer does."""

    def write(weights: str = "weights", **manifest):
        folder = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "nulog_model_latest.pt").write_text(weights)
        (folder / "vocab.txt").write_text("10000\n6\n")
        digest = hashlib.sha256(weights.encode()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps({"files": {"nulog_model_latest.pt": digest}, **manifest}))
        return folder

    return write


@pytest.fixture
def store(tmp_path):
    return Versions(tmp_path / "models")


def test_versions_are_numbered_and_inactive_at_first(store, trained):
    assert (store.all(), store.serving()) == ([], None)
    assert [store.add(trained()), store.add(trained("other"))] == ["v000001", "v000002"]
    assert store.serving() is None
    store.serve("v000001")
    assert store.serving() == "v000001"
    assert (store.folder_of("v000002") / "nulog_model_latest.pt").read_text() == "other"
    store.serve(None)
    assert store.serving() is None


def test_two_processes_remove_the_same_version(store, trained, monkeypatch):
    store.add(trained())
    drawn = secrets.token_hex

    def overtaken(size):  # after the one has seen that the version exists, and before it removes it
        monkeypatch.setattr(secrets, "token_hex", drawn)
        store.remove("v000001")
        return drawn(size)

    monkeypatch.setattr(secrets, "token_hex", overtaken)
    store.remove("v000001")
    assert store.all() == []
    assert list(store.folder.iterdir()) == []


@pytest.mark.parametrize("missing", ["nulog_model_latest.pt", "vocab.txt", "manifest.json"])
def test_an_incomplete_model_is_not_a_version(store, trained, missing):
    folder = trained()
    (folder / missing).unlink()
    with pytest.raises(BadVersion, match=missing):
        store.add(folder)
    assert store.all() == []


def test_a_damaged_version_is_not_activated_and_the_last_good_one_keeps_serving(store, trained):
    first, second = store.add(trained()), store.add(trained("two"))
    store.serve(first)
    (store.folder_of(second) / "nulog_model_latest.pt").write_text("twx")
    with pytest.raises(BadVersion, match="describes"):
        store.serve(second)
    assert store.serving() == first


def test_the_serving_version_is_kept_and_numbers_are_not_reused(store, trained):
    first, second = store.add(trained()), store.add(trained())
    store.serve(second)
    with pytest.raises(BadVersion):
        store.remove(second)
    store.remove(first)
    store.remove(first)
    assert store.all() == [second]
    assert store.add(trained()) == "v000003"


@pytest.mark.parametrize("name", ["", "..", "../x", "v1", "v999999", "serving"])
def test_version_names_cannot_leave_the_folder(store, name):
    with pytest.raises(BadVersion):
        store.folder_of(name)


@pytest.mark.django_db(transaction=True)
def test_a_rollback_is_published(as_staff, staff, trained, peer, client):
    peer.listen("model_update")
    files = versions.files()
    for weights in ("one", "two"):
        version = files.add(trained(weights))
        order = {"payload": {"parameters": {}, "weights": weights}}
        run, _ = lifecycle.create_run(order=order, by="test")
        files.serve(version)
        lifecycle.complete(run.pk, version=version, manifest={}, by="test")
    assert ModelVersion.objects.get(serving=True).version == "v000002"
    answer = as_staff.call("put", "aiops/versions/v000001:serve")
    assert answer.status_code == 200
    assert answer.json()["serving"]
    assert versions.files().serving() == "v000001"
    assert ModelVersion.objects.get(serving=True).version == "v000001"
    assert json.loads(peer.wait("model_update")[0])["bucket_files"]["model_file"] == "nulog_model_latest.pt"
    assert accounts.token_of(staff)


@pytest.mark.django_db
def test_old_versions_are_removed_but_not_the_serving_one(trained, monkeypatch):
    monkeypatch.setattr(versions, "KEPT", 1)
    files = versions.files()
    for number in range(4):
        ModelVersion.objects.create(version=files.add(trained(str(number))), serving=number == 0)
    files.serve("v000001")
    versions.prune()
    assert files.all() == ["v000001", "v000004"]
    assert set(ModelVersion.objects.values_list("version", flat=True)) == {"v000001", "v000004"}


# --- the end of a training -------------------------------------------------------------------------------------------
@pytest.fixture
def ending(trained, monkeypatch, tasks):
    """A training whose run has just succeeded."""
    kv.ensure()
    run, _ = lifecycle.create_run(order={"payload": {"parameters": {"workloads": {}}}}, by="test")
    run = lifecycle.order_run(run.pk, 1)
    lifecycle.note_start(run.pk, run.run_name, 1)
    folders.training(run.uuid).mkdir(parents=True)
    trained("new").rename(folders.training(run.uuid) / "out-1")
    ended = SimpleNamespace(state="exited", succeeded=True, reason="")
    monkeypatch.setattr(runners.get(), "poll", lambda name: ended)
    run.refresh_from_db()
    return run


def reset() -> None:
    decisions.reset(lambda messages: None)


def then(work, what):
    """Run `work`, and `what` at that very moment."""

    def both(*args, **kwargs):
        result = work(*args, **kwargs)
        what()
        return result

    return both


def killed(*_args, **_options):
    raise KeyboardInterrupt


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "moment",
    few([(Versions, "add"), (lifecycle, "complete"), (kv, "put_last_trained")], 1, names=1),
    ids=lambda moment: moment[1],
)
def test_a_reset_wins_against_a_finishing_training(ending, monkeypatch, moment):
    place, name = moment
    with monkeypatch.context() as patch:
        patch.setattr(place, name, then(getattr(place, name), lambda: (patch.undo(), reset())))
        launching.poll(ending)
        reconcile.run()
        assert getattr(place, name).__name__ == name  # it has come to that moment
    reconcile.run()
    assert versions.files().serving() is None
    assert not ModelVersion.objects.filter(serving=True).exists()
    assert kv.last_trained().workloads == {}
    assert kv.model_status()["status"] == "no model trained"
    assert versions.files().all() == list(ModelVersion.objects.values_list("version", flat=True))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "moment",
    few([(lifecycle, "complete"), (versions, "follow"), (Versions, "serve")], 1, names=1),
    ids=lambda moment: moment[1],
)
def test_a_version_is_activated_though_the_process_was_killed_at_the_end_of_the_training(ending, monkeypatch, moment):
    with monkeypatch.context() as patch:
        patch.setattr(*moment, killed)
        with pytest.raises(KeyboardInterrupt):
            launching.poll(ending)
    reconcile.run()
    ending.refresh_from_db()
    assert ending.state == "completed"
    serving = ModelVersion.objects.get(serving=True).version
    assert versions.files().serving() == serving
    assert versions.files().all() == [serving]


@pytest.mark.django_db(transaction=True)
def test_a_slow_process_does_not_reactivate_a_reset_version(trained, monkeypatch):
    """One process has read the serving version and is delayed; meanwhile it is reset; then the first continues and
    writes.
    """
    version = versions.files().add(trained())
    ModelVersion.objects.create(version=version, serving=True)
    real = Versions.serve

    def held_up(files, wanted):
        monkeypatch.setattr(Versions, "serve", real)
        versions.deactivate()
        real(files, wanted)

    monkeypatch.setattr(Versions, "serve", held_up)
    versions.follow()
    assert versions.files().serving() is None


@pytest.mark.django_db(transaction=True)
def test_files_that_differ_from_the_rows_are_repaired(trained, caplog):
    files = versions.files()
    first, second = files.add(trained("one")), files.add(trained("two"))
    ModelVersion.objects.create(version=first)
    row = ModelVersion.objects.create(version=second, serving=True)
    for wrong in (first, None):
        files.serve(wrong)
        reconcile.run()
        assert files.serving() == second
    files.folder_of(first).joinpath("manifest.json").unlink()
    ModelVersion.objects.filter(pk=row.pk).update(serving=False)
    ModelVersion.objects.filter(version=first).update(serving=True)
    reconcile.run()
    assert files.serving() == second  # the last good one keeps serving, and the reason is logged
    assert "manifest.json" in caplog.text
