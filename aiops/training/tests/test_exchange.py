"""Models cross to Opni's services and back through a real S3 server: rclone's."""

from __future__ import annotations

import hashlib
import json
import shutil

import pytest
import torch
from obstore.store import S3Store

from accounts.models import Notice
from aiops import lifecycle, logstore
from aiops.models import ModelVersion
from aiops.services.model_exchange import ModelExchange
from aiops.training import offering, requests, unjudged, versions
from aiops.wire import kv, lease, subjects
from kernel.environment import Secret
from kernel.tests.nats_tools import until
from operations.backup.tests.conftest import s3  # noqa: F401
from opnilog import opni
from opnilog.learning import Fitting
from opnilog.model import LogModel, Shape
from opnilog.score import Scorer
from opnilog.tokenizer import Tokenizer

pytestmark = pytest.mark.django_db(transaction=True)

MODEL, VOCAB = "nulog_model_latest.pt", "vocab.txt"
UPDATE = {"bucket": "kept", "bucket_files": {"model_file": MODEL, "vocab_file": VOCAB}}
TEXTS = ["connected to <ip>", "user <num> logged in", "disk of node is nearly full"]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def opnis(tmp_path_factory):
    """Return a folder with the two files of a small training by Opni's rules."""
    words = Tokenizer()
    rows = [words.encode(text, learning=True) for text in TEXTS]
    model = opni.fit(rows, [100, 10, 1], 1, lambda step, steps, loss: None, "cpu")
    folder = tmp_path_factory.mktemp("foreign") / "opni"
    opni.write(folder, model, opni.vocabulary(words))
    return folder


@pytest.fixture
def bucket(s3, settings, tmp_path):  # noqa: F811
    """Set the platform's bucket, empty, and return a store of a client of its own."""
    settings.AIOPS_S3_BUCKET, settings.AIOPS_S3_ENDPOINT = "kept", s3["AWS_ENDPOINT_URL"]
    settings.AIOPS_S3_ACCESS_KEY = Secret(s3["AWS_ACCESS_KEY_ID"])
    settings.AIOPS_S3_SECRET_KEY = Secret(s3["AWS_SECRET_ACCESS_KEY"])
    store = S3Store(
        "kept", endpoint=s3["AWS_ENDPOINT_URL"], access_key_id=s3["AWS_ACCESS_KEY_ID"],
        secret_access_key=s3["AWS_SECRET_ACCESS_KEY"], region="us-east-1", client_options={"allow_http": True},
    )  # fmt: skip
    empty(store)
    return store


def empty(store) -> None:
    for name in names(store):
        store.delete(name)


def names(store) -> set[str]:
    return {entry["path"] for batch in store.list() for entry in batch}


def upload(store, folder) -> None:
    for name in (MODEL, VOCAB):
        store.put(name, folder / name)


@pytest.fixture
def version(opnis, tmp_path):
    """Return a function that adds a version of ours, with its files for Opni's services, and lets it serve."""

    def add(mark: str = "one") -> str:
        folder = tmp_path / mark
        folder.mkdir()
        (folder / MODEL).write_text(mark)
        (folder / VOCAB).write_text("words")
        (folder / "manifest.json").write_text(json.dumps({"files": {}}))
        shutil.copytree(opnis, folder / "opni")
        (folder / "opni" / VOCAB).write_text((opnis / VOCAB).read_text() + mark)
        name = versions.files().add(folder)
        ModelVersion.objects.create(version=name, manifest={})
        versions.serve(name, "test")
        return name

    return add


@pytest.fixture
def exchange(served, peer):
    served(ModelExchange())
    peer.listen(subjects.MODEL_UPDATE)
    return peer


def announce(peer, **changes) -> None:
    peer.publish(subjects.MODEL_UPDATE, json.dumps({**UPDATE, **changes}).encode())


def others_trained(uuid: str = "") -> None:
    lease.acquire(uuid, "another training controller")
    lease.end(uuid)


# --- to Opni ---------------------------------------------------------------------------------------------------------
@pytest.mark.long
def test_the_exported_network_has_every_weight_that_opnis_code_loads_by_name(opnis):
    weights = torch.load(opnis / MODEL, weights_only=True)
    tables = {name for name in weights if name.endswith(".pe")}  # buffers, which are no parameters
    assert tables == {"src_embed.1.pe", "tgt_embed.1.pe"}
    assert sum(value.numel() for name, value in weights.items() if name not in tables) == 8_746_256
    assert weights["decoder.layers.0.src_attn.linears.3.weight"].shape == (256, 256)
    assert weights["decoder.layers.0.sublayer.2.norm.a_2"].shape == (256,)
    assert weights["tgt_embed.0.lut.weight"].shape == weights["generator.proj.weight"].shape == (10_000, 256)
    lines = (opnis / VOCAB).read_text().splitlines()
    assert lines[0] == "10000"
    assert len(lines) == 10_002
    assert lines[1] == str(5 + len({word for text in TEXTS for word in text.split()}))


def test_our_own_shape_is_not_opnis_so_that_a_second_network_is_needed():
    own = LogModel(Fitting().shape(10_000)).state_dict()
    theirs = LogModel(Shape()).state_dict()
    assert own["src_embed.0.lut.weight"].shape != theirs["src_embed.0.lut.weight"].shape


@pytest.mark.long
def test_a_version_that_is_chosen_is_in_the_bucket_before_it_is_announced(bucket, version, opnis, exchange):
    version()
    message = json.loads(exchange.wait(subjects.MODEL_UPDATE)[0])
    assert message == UPDATE
    assert names(bucket) == {MODEL, VOCAB}
    assert bytes(bucket.get(MODEL).bytes()) == (opnis / MODEL).read_bytes()
    version("two")
    assert bytes(bucket.get(VOCAB).bytes()).endswith(b"two")
    assert ModelVersion.objects.count() == 2


@pytest.mark.long
def test_what_opnis_services_empty_is_put_back_once_nobody_trains(bucket, version):
    version()
    empty(bucket)
    lease.acquire("", "another training controller")
    offering.offer()
    assert names(bucket) == set()
    lease.end("")
    offering.offer()
    assert names(bucket) == {MODEL, VOCAB}


@pytest.mark.long
def test_another_trainer_finds_the_bucket_empty(bucket, version, exchange):
    version()
    bucket.put("other", b"of somebody else")
    lease.acquire("", "another training controller")
    exchange.publish(subjects.MODEL_UPDATE, b'{"status":"training"}')
    until(lambda: names(bucket) == {"other"})


@pytest.mark.long
def test_a_bucket_that_does_not_answer_does_not_stop_a_version_from_serving(bucket, version, settings):
    settings.AIOPS_S3_SECRET_KEY = Secret("wrong")
    assert versions.files().serving() is None
    name = version()
    assert versions.files().serving() == name
    assert names(bucket) == set()


@pytest.mark.long
def test_a_version_without_files_for_opni_takes_the_last_ones_out(bucket, version):
    version()
    name = version("two")
    shutil.rmtree(versions.files().folder_of("v000001") / "opni")
    versions.serve("v000001", "test")
    assert names(bucket) == set()
    versions.serve(name, "test")
    assert names(bucket) == {MODEL, VOCAB}


# --- from Opni -------------------------------------------------------------------------------------------------------
def test_a_model_trained_elsewhere_is_fetched_verified_and_serves(bucket, opnis, exchange, version):
    mine = version()
    kv.put_model_status({"status": "completed", "statistics": None})
    others_trained()
    upload(bucket, opnis)
    announce(exchange)
    until(lambda: ModelVersion.objects.filter(serving=True).exclude(version=mine).exists())
    row = ModelVersion.objects.get(serving=True)
    until(lambda: requests.state()["version"] == row.version)
    state = requests.state()
    assert (state["status"], state["foreign"], state["reason"]) == ("completed", True, "")
    assert row.manifest["files"][MODEL] == hashlib.sha256((opnis / MODEL).read_bytes()).hexdigest()
    scorer = Scorer.open(versions.files().folder_of(row.version), "cpu")
    assert not scorer.ours
    # Ours and theirs stay versions to go back to, and the announcement of ours that follows changes nothing.
    until(lambda: len(exchange.heard[subjects.MODEL_UPDATE]) >= 3)
    versions.serve(mine, "test")
    until(lambda: len(exchange.heard[subjects.MODEL_UPDATE]) >= 4)
    assert versions.files().serving() == mine
    assert ModelVersion.objects.count() == 2


def test_a_model_that_does_not_load_leaves_the_last_one_serving_and_the_status_says_so(bucket, exchange, version):
    mine = version()
    others_trained()
    bucket.put(MODEL, b"no model")
    bucket.put(VOCAB, b"10000\n5\n")
    announce(exchange)
    state = until(lambda: requests.state()["status"] == "training failed" and requests.state())
    assert "cannot be used" in state["reason"]
    assert "vocabulary" in state["reason"]
    assert "/" not in state["reason"].replace("vocab.txt", "")
    assert state["version"] == mine
    assert versions.files().serving() == mine
    assert ModelVersion.objects.count() == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"bucket": "elsewhere"}, "elsewhere"), ({"bucket_files": {"model_file": "../x", "vocab_file": VOCAB}}, "names")],
)
def test_only_the_platforms_bucket_and_opnis_names_are_read(bucket, exchange, opnis, changes, words):
    others_trained()
    upload(bucket, opnis)
    announce(exchange, **changes)
    state = until(lambda: requests.state()["status"] == "training failed" and requests.state())
    assert words in state["reason"]


def test_without_a_bucket_a_foreign_training_is_told_and_an_own_announcement_is_not(exchange, version):
    version()
    announce(exchange)
    others_trained()
    announce(exchange)
    state = until(lambda: requests.state()["status"] == "training failed" and requests.state())
    assert "MLP_AIOPS_S3_BUCKET" in state["reason"]
    kv.put_model_status({"status": "completed", "statistics": None})
    version("two")
    announce(exchange)
    until(lambda: len(exchange.heard[subjects.MODEL_UPDATE]) >= 5)
    assert requests.state()["status"] == "completed"


# --- lines that nobody judges ----------------------------------------------------------------------------------------
def test_lines_that_nobody_can_judge_are_told_once_until_there_are_none(staff, alice, monkeypatch, version):
    class Store:
        lines = 7

        def count(self, body):
            return self.lines

    store = Store()
    monkeypatch.setattr(logstore, "get", lambda: store)
    kv.ensure()
    assert unjudged.count() == 0  # nothing is watched
    kv.put_watched({"c1": {"shop": ["web"]}})
    assert unjudged.count() == unjudged.count() == requests.state()["unjudged"] == 7
    (notice,) = Notice.objects.filter(kind="alert")
    assert notice.user == staff
    assert "no model serves" in notice.reason
    version()
    assert unjudged.count() == requests.state()["unjudged"] == 0
    lifecycle.deactivate()
    unjudged.count()
    assert Notice.objects.filter(kind="alert").count() == 2
