"""GGUF files as the load check sees them, without llama.cpp: what is refused, why. Those that load are in
apps/tests/test_language_frameworks.py.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
import zlib

import pytest

from mlp.tests.page_world import visible_text, visitor
from models_app import lifecycle
from models_app.loading import NotAModel, find, gguf
from models_app.models import Model
from models_app.sources import of_files

from .gguf_files import ARRAY, STRING, U32, values, write, write_parts
from .test_hugging_face import made


def refusal(path) -> str:
    with pytest.raises(gguf.Unusable) as problem:
        gguf.verify(path)
    return str(problem.value)


def test_the_header_says_what_it_is(tmp_path):
    path = write(tmp_path / "tiny.Q4_K_M.gguf", values(**{"general.file_type": (U32, 15)}))
    assert find(tmp_path) == ("gguf", path)
    assert gguf.verify(path) == {
        "architecture": "llama", "quantization": "Q4_K_M", "context": 512, "chat_template": True, "parts": 1,
    }  # fmt: skip


def test_parts_are_one_model(tmp_path):
    first, second = write_parts(tmp_path)
    assert find(tmp_path) == ("gguf", first)
    assert gguf.verify(first)["parts"] == 2
    mine = second.read_bytes()
    second.write_bytes(first.read_bytes())
    assert refusal(first) == f"{second.name}: is another part of a model than its name says"
    second.write_bytes(mine)
    second.unlink()
    assert refusal(first) == f"{second.name}: is missing; all 2 parts of the model must be in one folder"
    first.rename(tmp_path / "whole.gguf")
    assert "is one of 2 parts" in refusal(tmp_path / "whole.gguf")


def test_of_several_models_one_must_be_named(tmp_path):
    write(tmp_path / "a.gguf")
    write(tmp_path / "b.gguf")
    with pytest.raises(NotAModel, match=r"which file is the model\? There are a\.gguf, b\.gguf"):
        find(tmp_path)
    made(tmp_path)
    assert find(tmp_path)[0] == "transformers", "beside safetensors it is the same model once more"


WRONG = (
    ({"general.architecture": None}, "general.architecture is missing"),
    ({"general.architecture": (STRING, "clip")}, "is an encoder of pictures"),
    ({"general.architecture": (STRING, "bert")}, "is an embedding model"),
    ({"general.type": (STRING, "adapter")}, "is no whole model (adapter)"),
    ({"general.alignment": (U32, 0)}, "general.alignment must be a positive number"),
)


@pytest.mark.parametrize(("change", "words"), WRONG)
def test_other_kinds_are_refused(tmp_path, change, words):
    assert words in refusal(write(tmp_path / "x.gguf", values(**change)))


def test_what_is_no_whole_file_is_refused(tmp_path):
    path = write(tmp_path / "x.gguf")
    whole = path.read_bytes()
    assert "has no tensors" in refusal(write(tmp_path / "x.gguf", arrays={}))
    for content, words in (
        (b"", "is no GGUF file"), (b"PK\3\4", "is no GGUF file"), (whole[:100], "is truncated"),
        (whole[:-1000], f"it has {len(whole) - 1000} of {len(whole)} bytes"),
        (b"GGUF" + whole[4:5] + b"\0", "truncated"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "has version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1), "too long"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, 1 << 62), "is truncated"),
    ):  # fmt: skip
        path.write_bytes(content)
        assert words in refusal(path), content[:20]


def test_a_damaged_header_is_refused_or_read(tmp_path):
    """Whatever its bytes are: no other failure, and no more work than the file is long."""
    path = write(tmp_path / "x.gguf")
    whole, chance = path.read_bytes(), random.Random(zlib.crc32(b"gguf"))
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[chance.randrange(8000)] = chance.choice((0, 1, 9, 255))
        path.write_bytes(damaged)
        with contextlib.suppress(gguf.Unusable):
            gguf.verify(path)


def test_what_a_header_may_cost_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "many.gguf"
    key = struct.pack("<Q", 1) + b"k"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + struct.pack("<IIQ", ARRAY, STRING, 60 << 20))
    os.truncate(path, 500 << 20)  # so many empty texts, which take no place on the disk
    assert "many.gguf: has more than 2097152 texts in its header" in refusal(path)
    monkeypatch.setattr(gguf, "MOST_KEPT", 1000)
    texts = {f"general.note{at}": (STRING, "x" * 400) for at in range(9)}
    header = gguf.Header(write(path, texts))
    assert sum(map(len, header.values.values())) <= 1000
    assert len(refusal(write(path, values(**{"split.count": (STRING, "x" * 100_000)})))) < 200


def test_it_is_proposed_as_a_file_or_with_its_parts_as_a_folder():
    files = ["a/x-00001-of-00002.gguf", "a/x-00002-of-00002.gguf", "b/y.gguf"]
    assert set(of_files(files, "home")) == {"home/a", "home/b/y.gguf"}


@pytest.mark.django_db
def test_the_page_shows_quantization_and_context(alice, tmp_path):
    about = gguf.verify(write(tmp_path / "x.gguf", values(**{"general.file_type": (U32, 15)})))
    row = Model.objects.create(user=alice, tenant=alice.tenant, name="tiny", src="home/x.gguf", size=1, reserved=False)
    inputs = [{"name": "messages", "datatype": "BYTES", "shape": [-1]}]
    lifecycle.complete(row.pk, {"format": "gguf", "inputs": inputs, "outputs": [], "about": about}, "test")
    words = visible_text(visitor(alice).get("/models/tiny"))
    assert all(word in words for word in ("Q4_K_M", "512", "llama"))
    assert Model.objects.get().is_language_model


@pytest.mark.django_db
def test_what_a_check_says_is_not_trusted(alice):
    """The code of a predictor.py writes what it likes."""
    row = Model.objects.create(user=alice, tenant=alice.tenant, name="tiny", src="home/x", size=1, reserved=False)
    about = {"quantization": "x" * 1000, "context": "<b>", "own": 1, "parts": True, "architecture": ["a"]}
    lifecycle.complete(row.pk, {"format": "gguf", "about": about}, "test")
    assert Model.objects.get().signature == {}
