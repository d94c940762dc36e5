"""When vLLM computes the answers of a language model, with what, and what it is asked; vllm itself is a stand-in."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import types
from datetime import timedelta

import pytest
from django.utils import timezone

from apps import launching
from apps.models import Application
from models_app.launching import PROGRAM
from models_app.models import Model
from models_app.tests.test_hugging_face import made
from runners import RunStatus

from . import scripted_vllm
from .conftest import NAMES
from .language_process import serving

__all__ = ["serving"]


@pytest.fixture
def clean(monkeypatch):
    """Start without the variables for the limits of a run, and remove those that the engine sets."""
    before = dict(os.environ)
    for name in ("MLP_RAM_MIB", "MLP_VLLM_GPU_PERCENT"):
        monkeypatch.delenv(name, raising=False)
    yield
    os.environ.clear()
    os.environ |= before


@pytest.fixture
def vllm(serving, monkeypatch, tmp_path, clean):
    """Return a function that opens the engine; all that it has opened are closed."""
    opened = []

    def of(mib: int = 1, **machine):
        scripted_vllm.install(monkeypatch, **machine)
        engine = serving("chat_vllm").VllmEngine(scripted_vllm.weights(tmp_path, mib), scripted_vllm.HUGGING_FACE)
        opened.append(engine)
        return engine

    yield of
    for engine in opened:
        engine.close()
        assert engine.engine.ended


@pytest.mark.parametrize(
    ("machine", "chosen"),
    [
        ({"device": "cpu"}, "VllmEngine"),
        ({"device": "cuda", "gpus": 1}, "VllmEngine"),
        ({"device": "cuda"}, "TransformersEngine"),
        ({"device": ""}, "TransformersEngine"),
        (None, "TransformersEngine"),
    ],
)
def test_an_environment_with_vllm_is_served_by_it_where_it_can_compute(
    serving, monkeypatch, tmp_path, clean, machine, chosen
):
    made(tmp_path)
    monkeypatch.setenv("MLP_LOADING", str(PROGRAM))
    assert importlib.util.find_spec("vllm") is None
    chat, seen = serving("chat"), []
    if machine is not None:
        scripted_vllm.install(monkeypatch, **machine)
        monkeypatch.setattr(serving("chat_vllm"), "VllmEngine", lambda *given: seen.append("VllmEngine"))
    transformers = types.ModuleType("chat_transformers")
    transformers.TransformersEngine = lambda *given: seen.append("TransformersEngine")
    monkeypatch.setitem(sys.modules, "chat_transformers", transformers)
    chat.open_engine(tmp_path)
    assert seen == [chosen]


def test_a_package_that_does_not_work_is_named(serving, monkeypatch, clean):
    scripted_vllm.install(monkeypatch)
    monkeypatch.delattr(sys.modules["vllm.platforms"], "current_platform")
    with pytest.raises(RuntimeError, match="the package vllm cannot be used: ImportError"):
        serving("chat_vllm").computes_here()
    assert os.environ["VLLM_NO_USAGE_STATS"] == os.environ["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize(
    ("machine", "ram", "weights", "memory"),
    [
        ({}, None, 1, ("kv_cache_memory_bytes", 1024 << 20)),
        ({}, "8192", 1000, ("kv_cache_memory_bytes", 2316 << 20)),
        ({"device": "cuda", "gpus": 2}, "100", 1000, ("gpu_memory_utilization", 0.85)),
    ],
)
def test_the_model_gets_the_memory_of_the_run(vllm, monkeypatch, machine, ram, weights, memory):
    monkeypatch.setenv("MLP_VLLM_GPU_PERCENT", "85")
    if ram:
        monkeypatch.setenv("MLP_RAM_MIB", ram)
    given = vllm(weights, **machine).engine.given
    name, value = memory
    assert getattr(given, name) == value
    assert not hasattr(given, "gpu_memory_utilization" if name[0] == "k" else "kv_cache_memory_bytes")
    assert (given.tensor_parallel_size, given.max_model_len) == (max(1, machine.get("gpus", 0)), -1)
    assert (given.trust_remote_code, given.load_format) == (False, "safetensors")


def test_too_little_memory_is_refused_with_how_much_it_takes(vllm, monkeypatch):
    monkeypatch.setenv("MLP_RAM_MIB", "3000")
    with pytest.raises(RuntimeError, match="vLLM needs at least 3816 MiB of memory here"):
        vllm(1000)


def generate(engine, serving, tokens: list[int], **options) -> list[tuple]:
    seen, cancelled = [], threading.Event()
    given = serving("chat_engine").Options(**{"most": 99, **options})
    engine.generate(tokens, given, seen.append, cancelled)
    return [(piece.text, piece.tokens, piece.finish) for piece in seen]


def test_an_answer_comes_in_pieces_with_its_tokens_and_its_end(vllm, serving):
    engine = vllm()
    engine.engine.go.set()
    assert generate(engine, serving, [1, 2]) == [*((letter, 1, "") for letter in "hell"), ("o", 1, "stop")]
    assert generate(engine, serving, [1], most=2) == [("h", 1, ""), ("e", 1, "length")]
    assert [tokens for tokens, _params in engine.engine.asked] == [[1, 2], [1]]
    with pytest.raises(serving("chat_engine").WrongPrompt, match="vLLM does not take it: no such token"):
        generate(engine, serving, [99])
    assert (engine.context, engine.vocabulary, engine.format) == (1000, 300, "vllm")


def test_tokens_are_chosen_as_by_the_other_engines(vllm, serving):
    engine = vllm()
    engine.engine.go.set()
    chosen = ({"temperature": 0}, {"top_p": 0.0}, {"temperature": 0.5, "top_p": 0.9, "seed": -1}, {"temperature": 1e-9})
    for options in chosen:
        generate(engine, serving, [1], **options)
    greedy, also, seeded, cold = (vars(params) for _tokens, params in engine.engine.asked)
    assert greedy["temperature"] == also["temperature"] == 0.0
    assert (seeded["temperature"], seeded["top_p"], seeded["seed"]) == (0.5, 0.9, 2**63 - 1)
    assert (cold["temperature"], "seed" in cold) == (0.01, False)


def test_an_answer_that_nobody_waits_for_is_given_up(vllm, serving):
    engine, seen, cancelled, begun = vllm(), [], threading.Event(), threading.Event()

    def emit(piece) -> None:
        seen.append(piece)
        begun.set()

    given = [[1], serving("chat_engine").Options(99), emit, cancelled]
    thread = threading.Thread(target=engine.generate, args=given)
    thread.start()
    assert begun.wait(60)
    cancelled.set()
    thread.join(60)
    assert engine.engine.left.wait(60)
    assert [piece.text for piece in seen] == ["h", ""]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("format", "ran_s", "state", "reason"),
    [
        ("transformers", 200, "creating", "waiting to start: the model is being loaded"),
        ("transformers", 1000, "creating", "did not answer within 900 s"),
        ("predictor", 200, "creating", "did not answer within 120 s"),
        ("predictor", 20, "creating", ""),
    ],
)
def test_a_language_model_may_take_longer_to_load_and_says_that_it_does(adder, tasks, format, ran_s, state, reason):
    Model.objects.update(format=format)
    ordered = timezone.now() - timedelta(seconds=ran_s)
    app = Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=Model.objects.get(), name=next(NAMES), port=31000, state="creating",
        run_name="app-9-9", ordered=ordered, reserved=False,
    )  # fmt: skip
    assert launching.spec_of(app).environment.get("MLP_RAM_MIB") == (str(app.ram) if format == "transformers" else None)
    status = RunStatus("running", started=ordered.timestamp())
    launching.RUNS.running(app, status, follow=False)
    app.refresh_from_db()
    assert (app.state, reason in app.reason) == (state, True), app.reason
    assert bool(app.reason) == bool(reason)
