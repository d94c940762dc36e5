"""Versions on disk: whole or not at all, verified, switched atomically, and the rows that say the same."""

from __future__ import annotations

import hashlib
import json

import pytest

from accounts import lifecycle as accounts
from aiops import lifecycle, versions
from aiops.models import ModelVersion
from aiops.opnilog.store import BadVersion, Versions


@pytest.fixture
def trained(tmp_path):
    """`trained(weights)` writes a model as the trainer does."""

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


def test_versions_are_numbered_and_none_serves_until_it_is_told_to(store, trained):
    assert (store.all(), store.serving()) == ([], None)
    assert [store.add(trained()), store.add(trained("other"))] == ["v000001", "v000002"]
    assert store.serving() is None
    store.serve("v000001")
    assert store.serving() == "v000001"
    assert (store.folder_of("v000002") / "nulog_model_latest.pt").read_text() == "other"
    store.serve(None)
    assert store.serving() is None


@pytest.mark.parametrize("missing", ["nulog_model_latest.pt", "vocab.txt", "manifest.json"])
def test_half_a_model_is_no_version(store, trained, missing):
    folder = trained()
    (folder / missing).unlink()
    with pytest.raises(BadVersion, match=missing):
        store.add(folder)
    assert store.all() == []


def test_a_damaged_version_does_not_serve_and_the_last_good_one_goes_on(store, trained):
    first, second = store.add(trained()), store.add(trained("two"))
    store.serve(first)
    (store.folder_of(second) / "nulog_model_latest.pt").write_text("twx")
    with pytest.raises(BadVersion, match="describes"):
        store.serve(second)
    assert store.serving() == first


def test_the_serving_version_is_not_removed_and_its_number_does_not_come_back(store, trained):
    first, second = store.add(trained()), store.add(trained())
    store.serve(second)
    with pytest.raises(BadVersion):
        store.remove(second)
    store.remove(first)
    store.remove(first)
    assert store.all() == [second]
    assert store.add(trained()) == "v000003"


@pytest.mark.parametrize("name", ["", "..", "../x", "v1", "v999999", "serving"])
def test_names_lead_nowhere_else(store, name):
    with pytest.raises(BadVersion):
        store.folder_of(name)


@pytest.mark.django_db(transaction=True)
def test_rolling_back_is_told_to_everybody(as_staff, staff, trained, peer, client):
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
def test_old_versions_go_and_what_serves_stays(trained, monkeypatch):
    monkeypatch.setattr(versions, "KEPT", 1)
    files = versions.files()
    for number in range(4):
        ModelVersion.objects.create(version=files.add(trained(str(number))), serving=number == 0)
    files.serve("v000001")
    versions.prune()
    assert files.all() == ["v000001", "v000004"]
    assert set(ModelVersion.objects.values_list("version", flat=True)) == {"v000001", "v000004"}
