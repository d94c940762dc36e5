"""A stand-in for the package vllm, which is too large for these tests; the real one is tried in test_vllm.py.

It answers with the letters of `WORDS`, one by one, each when the test lets it (`go`), and keeps what it was asked.
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import sys
import threading
import types
from pathlib import Path
from types import SimpleNamespace

WORDS = "hello"


class Engine:
    """Of the interface of vLLM's AsyncLLM what the platform uses."""

    errored = False

    def __init__(self, given: SimpleNamespace):
        self.given, self.asked, self.left, self.ended = given, [], threading.Event(), False
        self.go = threading.Event()
        self.model_config = SimpleNamespace(max_model_len=1000, get_vocab_size=lambda: 300)

    @classmethod
    def from_engine_args(cls, given: SimpleNamespace) -> Engine:
        return cls(given)

    async def generate(self, prompt, params, key):
        self.asked.append((prompt["prompt_token_ids"], params))
        try:
            if prompt["prompt_token_ids"] == [99]:
                raise ValueError("no such token")
            for at, letter in enumerate(WORDS, 1):
                while not self.go.is_set() and at > 1:
                    await asyncio.sleep(0.001)
                ends = "length" if at == params.max_tokens else "stop" if at == len(WORDS) else None
                yield SimpleNamespace(outputs=[SimpleNamespace(text=letter, token_ids=[at], finish_reason=ends)])
                if ends:
                    return
        finally:
            self.left.set()

    def shutdown(self, timeout=None) -> None:
        self.ended = True


class Tokenizer:
    """A token for each letter, and one that ends texts."""

    chat_template, bos_token_id, eos_token_id = "", None, 0

    def encode(self, text: str) -> list[int]:
        return [*text.encode()]


HUGGING_FACE = SimpleNamespace(tokenizer_of=lambda folder: Tokenizer(), require_fitting=lambda tokenizer, rows: None)


def install(monkeypatch, *, device: str = "cpu", gpus: int = 0) -> None:
    """Put it in the place of vllm, built for a device, on a machine with so many GPUs."""
    cuda = SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus)
    modules = {
        "vllm": {"SamplingParams": SimpleNamespace},
        "vllm.platforms": {"current_platform": SimpleNamespace(device_type=device)},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(DELTA="delta")},
        "vllm.engine": {}, "vllm.engine.arg_utils": {"AsyncEngineArgs": SimpleNamespace},
        "vllm.v1": {}, "vllm.v1.engine": {}, "vllm.v1.engine.async_llm": {"AsyncLLM": Engine},
        "torch": {"cuda": cuda},
    }  # fmt: skip
    for name, content in modules.items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)


def weights(folder: Path, mib: int = 1) -> Path:
    """Return a folder with a file of weights of this size, which has nothing on the disk."""
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(mib << 20)
    return folder
