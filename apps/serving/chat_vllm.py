"""The engine of language models by vLLM, which computes many answers at once; used where the model's packages have it.

vLLM computes in processes of its own and is asked over its Python interface, so the protocol, its limits, streams and
the stop are the server's (chat.py), as with the other engines. Signals do not reach these processes: the server answers
what it has begun, then ends them. When they end by themselves, so does the server, and its run is started again.

MLP_RAM_MIB: the memory of the run. MLP_VLLM_GPU_PERCENT: the share of each GPU's memory that vLLM takes.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import uuid
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path

from chat_engine import LEAST_TEMPERATURE, LENGTH, STOP, Options, Piece, WrongPrompt, bound_operators
from chat_tokens import Tokenized
from tool_calls import form_of

PARALLEL = 64  # answers that are computed together
LOOK_S = 1.0  # between two looks at whether vLLM's processes are there
ENDS_S = 2.0  # that a killed process may take to end
STOPS = (signal.SIGTERM, signal.SIGINT)
MIB = 1 << 20
OWN_MIB = 2560  # of the memory of a run without a GPU: for the server and vLLM's processes
LEAST_CACHE_MIB, USUAL_CACHE_MIB = 128, 1024  # for what is computed of prompts and answers, without a GPU
COMPILERS = ("gcc", "cc", "clang")  # vLLM compiles kernels for the model where there is one
# It would write to its authors, fetch from the internet, ask the network for this machine's address, and bind the
# threads of all runs to the same cores.
SETTINGS = {
    "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_HOST_IP": "127.0.0.1", "VLLM_LOOPBACK_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ENGINE_READY_TIMEOUT_S": "86400",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn", "USER": "run",  # which PyTorch before 2.13 looks up by the user id
}  # fmt: skip


def computes_here() -> bool:
    """Return whether vLLM can compute in this run: its builds for GPUs cannot without one. Raises RuntimeError where
    the package does not work.
    """
    os.environ |= SETTINGS
    try:
        from vllm.platforms import current_platform

        without_gpu = current_platform.device_type == "cpu"
    except Exception as problem:
        raise RuntimeError(f"the package vllm cannot be used: {type(problem).__name__}: {problem}") from problem
    return without_gpu or _gpus() > 0


def _gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


class VllmEngine(Tokenized):
    """A model in vLLM's processes (see chat_engine.Engine)."""

    format, parallel, embeds = "vllm", PARALLEL, False

    def __init__(self, folder: Path, hugging_face):
        os.environ |= SETTINGS
        _require_room(folder)
        self.tokenizer = hugging_face.tokenizer_of(folder)
        self.chats = bool(self.tokenizer.chat_template)
        if self.chats:
            bound_operators()
        self.tools = form_of(self._template_with_tools()) if self.chats else ""
        self.engine, self.closed = None, threading.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="vllm", daemon=True)
        self.thread.start()
        atexit.register(self.close)
        with _ending_children():
            print("vLLM loads the model; this takes a minute or more", flush=True)
            self.engine = self._call(_opened(folder))
        config = self.engine.model_config
        self.context, self.vocabulary = config.max_model_len, config.get_vocab_size()
        hugging_face.require_fitting(self.tokenizer, self.vocabulary)
        from chat_constraints import constraints_for

        ends = [self.tokenizer.eos_token_id] if self.tokenizer.eos_token_id is not None else []
        self.constraints = constraints_for(self.tokenizer, self.vocabulary, ends) if self.chats else None
        self.constrains = self.constraints is not None
        self.loop.call_soon_threadsafe(self._look)

    def _run(self) -> None:
        resource_tracker.ensure_running()  # its start lets the signals through
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # and so in the processes that are started here
        self.loop.run_forever()

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def _look(self) -> None:
        """End this process when vLLM's have ended; what was asked meanwhile is answered with the failure first."""
        self.loop.call_later(LOOK_S, self._give_up if self.engine.errored else self._look)

    def _give_up(self) -> None:
        if not self.closed.is_set():
            print("the processes of vLLM have ended by themselves", file=sys.stderr, flush=True)
            _end_children()
            os._exit(1)

    def close(self) -> None:
        """End vLLM's processes."""
        if self.closed.is_set():
            return
        self.closed.set()
        if self.engine is not None:
            with contextlib.suppress(Exception):
                self.engine.shutdown(timeout=0)  # SIGTERM does not reach them
        _end_children()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(ENDS_S)

    def constraint(self, schema: dict) -> object:
        """Return what makes one answer follow a JSON schema."""
        from chat_constraints import styled
        from vllm.sampling_params import StructuredOutputsParams

        self.constraints.following(schema)  # whether it can be followed
        return StructuredOutputsParams(json=styled(schema))

    def calling(self, functions: list[tuple[str, dict]]) -> object:
        """Return what makes the calls in one answer follow the functions' JSON schemas."""
        from vllm.sampling_params import StructuredOutputsParams

        return StructuredOutputsParams(grammar=self.constraints.grammar_of_calls(self.tools, functions))

    def generate(
        self, tokens: list[int], options: Options, emit: Callable[[Piece], None], cancelled: threading.Event
    ) -> None:
        """Continue the prompt in vLLM's processes."""
        answer = asyncio.run_coroutine_threadsafe(self._continue(tokens, options, emit), self.loop)
        answer.add_done_callback(lambda _: cancelled.set())
        cancelled.wait()
        if not answer.cancel():
            answer.result()
        else:
            emit(Piece("", 0, STOP))

    async def _continue(self, tokens: list[int], options: Options, emit: Callable[[Piece], None]) -> None:
        """Send on what vLLM writes; it stops where this is cancelled."""
        prompt, params = {"prompt_token_ids": tokens}, _sampling(options)
        try:
            async for output in self.engine.generate(prompt, params, uuid.uuid4().hex):
                (made,) = output.outputs
                finish = made.finish_reason
                if finish not in (None, "stop", "length"):
                    raise RuntimeError(f"vLLM has ended the answer: {finish}")
                emit(Piece(made.text, len(made.token_ids), {"length": LENGTH}.get(finish, STOP) if finish else ""))
        except ValueError as problem:  # of the request: what the server lets pass, and vLLM does not take
            raise WrongPrompt(f"vLLM does not take it: {str(problem)[:300]}") from None


def _sampling(options: Options):
    """Return how to choose tokens; the model's own defaults do not count."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    chosen = {"temperature": 0.0}
    if options.temperature > 0 and options.top_p > 0:
        chosen = {"temperature": max(options.temperature, LEAST_TEMPERATURE), "top_p": options.top_p}
    if options.seed is not None:
        chosen["seed"] = options.seed % 2**63  # vLLM takes -1 for none
    if options.constraint is not None:
        chosen["structured_outputs"] = options.constraint
    return SamplingParams(max_tokens=options.most, output_kind=RequestOutputKind.DELTA, **chosen)


async def _opened(folder: Path):
    """Return vLLM's engine with the model, in processes of its own."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    gpus = _gpus()
    return AsyncLLM.from_engine_args(AsyncEngineArgs(
        model=str(folder), load_format="safetensors", trust_remote_code=False, max_num_seqs=PARALLEL,
        max_model_len=-1,  # as much as the model has and the memory takes
        tensor_parallel_size=max(1, gpus), enforce_eager=not gpus or not any(map(shutil.which, COMPILERS)),
        structured_outputs_config={"backend": "guidance"}, disable_log_stats=True, **_memory(folder, gpus),
    ))  # fmt: skip


def _memory(folder: Path, gpus: int) -> dict:
    if gpus:
        return {"gpu_memory_utilization": int(os.environ.get("MLP_VLLM_GPU_PERCENT", "90")) / 100}
    return {"kv_cache_memory_bytes": _cache_mib(folder) * MIB}


def _cache_mib(folder: Path) -> int:
    """Return the MiB for what is computed of prompts and answers without a GPU."""
    ram = os.environ.get("MLP_RAM_MIB")
    return (int(ram) - OWN_MIB - _weights_mib(folder)) // 2 if ram else USUAL_CACHE_MIB


def _weights_mib(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors")) // MIB


def _require_room(folder: Path) -> None:
    """Raise RuntimeError where the memory of the run is too small for vLLM without a GPU."""
    if not _gpus() and _cache_mib(folder) < LEAST_CACHE_MIB:
        least = OWN_MIB + _weights_mib(folder) + 2 * LEAST_CACHE_MIB
        raise RuntimeError(f"vLLM needs at least {least} MiB of memory here, the application has less")


@contextlib.contextmanager
def _ending_children():
    """Let a signal that ends this process meanwhile end its children, too."""

    def end(number: int, _frame) -> None:
        _end_children()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    before = {number: signal.signal(number, end) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_children() -> None:
    """Kill the processes that this one has started, with theirs."""
    for child in multiprocessing.active_children():
        for pid in (child.pid, *_below(child.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.join(ENDS_S)


def _below(pid: int) -> list[int]:
    """Return the processes that a process has started, and these in turn."""
    found = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for each in map(int, (thread / "children").read_text().split()):
                found += [each, *_below(each)]
    return found
