"""Language models: what the gateway with its key, and the counting of tokens, cost beside the serving process alone.

Both answer the same streams in turn, from the same model, in the same run: tokens per second between the first and the
last piece, and the time to the first. BENCH_LANGUAGE is the Python with the engine: by default the one that `make
frameworks` has installed (transformers); one with vLLM is served by that. The model is random, of a size that takes
milliseconds for a token.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import bars
import instance
import peers

PYTHON = os.environ.get("BENCH_LANGUAGE") or str(instance.ROOT / ".venv-frameworks" / "bin" / "python")
MAKE = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
letters = {chr(97 + at): at for at in range(26)}
words = Tokenizer(models.BPE(vocab={**letters, "<|end|>": 26}, merges=[]))
words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
torch.manual_seed(3)
sizes = dict(hidden_size=512, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=8)
model = LlamaForCausalLM(LlamaConfig(vocab_size=27, max_position_embeddings=512, eos_token_id=26, **sizes))
model.lm_head.weight.data[26] = 0  # it does not end by itself
model.save_pretrained(sys.argv[1])
PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|end|>").save_pretrained(sys.argv[1])
"""
BODY = {"prompt": "abc", "max_tokens": 128, "temperature": 0, "stream": True}
STREAMS = 30  # of each
MOST_LOST, MOST_LATER_MS = 3.0, 5.0  # per cent of the tokens per second, and milliseconds to the first


def stream(port: int, path: str, headers: dict[str, str]) -> tuple[float, float]:
    """Return the seconds to the first piece of a stream, and its tokens per second after that."""
    link = http.client.HTTPConnection(instance.HOST, port, timeout=120)
    began = time.perf_counter()
    link.request("POST", path, json.dumps(BODY), {"Content-Type": "application/json", **headers})
    answer = link.getresponse()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {answer.read()[:300]}")
    times = []
    while line := answer.readline():
        if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["text"]:
            times.append(time.perf_counter())
    link.close()
    return times[0] - began, (len(times) - 1) / (times[-1] - times[0])


def measure(ways: dict[str, tuple]) -> dict[str, tuple[float, float]]:
    """Return the median of the seconds to the first piece, and of the tokens per second, of each way; taken in turn."""
    seen: dict[str, list] = {name: [] for name in ways}
    for number in range(STREAMS + 2):
        for name, way in ways.items():
            taken = stream(*way)
            if number >= 2:  # the first ones fill caches
                seen[name].append(taken)
    medians = {name: tuple(map(statistics.median, zip(*taken, strict=True))) for name, taken in seen.items()}
    for name, (first, rate) in medians.items():
        print(f"{name:<30} first token {1000 * first:7.2f} ms   {rate:7.1f} tokens/s", flush=True)
    return medians


def deploy(platform: instance.Instance, folder: Path) -> str:
    """Return a key of an application of the model."""
    for file in folder.iterdir():
        platform.request("PUT", f"/data/bench/.home/lm/{file.name}", file.read_bytes())
    platform.call("POST", "/users/bench/models", {"name": "lm", "src": "home/lm"})
    platform.wait_state("models/lm", "ready", 300)
    platform.call("POST", "/users/bench/apps", {"name": "lm", "model_name": "lm", "cpu": 1, "ram": 4096})
    platform.wait_state("apps/lm", "ready", 300)
    return platform.call("POST", "/users/bench/apps/lm/keys", {"name": "bench"})["key"]


def main() -> None:
    if not Path(PYTHON).is_file():
        raise peers.NoPeer("BENCH_LANGUAGE is not given, and make frameworks has not been run: no language model")
    port = instance.free_port()
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([PYTHON, "-c", MAKE, place], check=True, capture_output=True)
        given = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": ""}
        given |= {"MLP_LOADING": str(instance.ROOT / "models_app" / "loading.py"), "MLP_RAM_MIB": "4096"}
        command = [PYTHON, str(instance.ROOT / "apps" / "serving" / "chat.py"), "--model", place, "--name", "lm"]
        command += ["--host", instance.HOST, "--port", str(port)]
        with instance.running(MLP_RUN_PYTHON=PYTHON) as platform:
            key = deploy(platform, Path(place))
            with instance.server(command, f"http://{instance.HOST}:{port}/health", 300, env=given, **instance.QUIET):
                ways = {
                    "its process alone, at a port": (port, "/v1/completions", {}),
                    "through the gateway, counted": (
                        platform.base + 2, "/bench/lm/v1/completions", {"Authorization": f"Bearer {key}"},
                    ),
                }  # fmt: skip
                (alone_s, alone_rate), (through_s, through_rate) = measure(ways).values()
    lost, later = 100 * (1 - through_rate / alone_rate), 1000 * (through_s - alone_s)
    print(
        f"the gateway and the counting take {lost:.2f} % of the tokens/s, and {later:.2f} ms to the first", flush=True
    )
    bars.note("tokens per second that the gateway takes", lost, "%", most=MOST_LOST)
    bars.note("what the gateway adds to the first token", later, "ms", most=MOST_LATER_MS)


if __name__ == "__main__":
    main()
