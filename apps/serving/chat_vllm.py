"""Language models by vLLM, which computes many answers at once: the engine where it is among the model's packages.

vLLM runs in processes of its own that end with this one, and is asked over its own interface, so health, names, limits,
streams and the stop are the server's (chat.py). `MLP_VLLM_MEMORY` is the share of the GPU's memory that it takes (0.9);
without a GPU the package has to be a build for the processor, and `VLLM_CPU_KVCACHE_SPACE` are the GiB for what it
keeps of prompts.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from chat_engine import LENGTH, STOP, Options, Piece, bound_operators
from chat_transformers import LEAST_TEMPERATURE, Tokenized
from tool_calls import form_of

PARALLEL, MOST_CONTEXT = 32, 32_768
LOOK_S = 0.2  # after which an answer that does not begin looks whether its caller has left
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}


class VllmEngine(Tokenized):
    """A model in vLLM's processes (see chat_engine.Engine)."""

    format, parallel, embeds, constrains = "transformers (vLLM)", PARALLEL, False, True

    def __init__(self, folder: Path, hugging_face):
        os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
        from transformers import AutoConfig, AutoTokenizer

        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.context = min(getattr(config, "max_position_embeddings", MOST_CONTEXT), MOST_CONTEXT)
        self.vocabulary = config.vocab_size
        self.chats = bool(self.tokenizer.chat_template)
        if self.chats:
            bound_operators()
        self.tools = form_of(self._template_with_tools()) if self.chats else ""
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="vllm", daemon=True).start()
        self.engine = asyncio.run_coroutine_threadsafe(self._opened(folder), self.loop).result()

    async def _opened(self, folder: Path):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        memory = float(os.environ.get("MLP_VLLM_MEMORY", "0.9"))
        return AsyncLLM.from_engine_args(AsyncEngineArgs(
            model=str(folder), max_model_len=self.context, max_num_seqs=PARALLEL, gpu_memory_utilization=memory,
            trust_remote_code=False, disable_log_stats=True,
        ))  # fmt: skip

    def constraint(self, schema: dict) -> object:
        """Return what makes one answer follow a JSON schema."""
        from vllm.sampling_params import StructuredOutputsParams

        return StructuredOutputsParams(json=schema)

    def generate(
        self, tokens: list[int], options: Options, emit: Callable[[Piece], None], cancelled: threading.Event
    ) -> None:
        """Continue the prompt in vLLM's processes."""
        work = self._continue(tokens, options, emit, cancelled)
        asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def _continue(self, tokens, options: Options, emit, cancelled: threading.Event) -> None:
        key = uuid.uuid4().hex
        outputs = self.engine.generate({"prompt_token_ids": tokens}, self._sampling(options), key)
        waiting = None
        try:
            while not cancelled.is_set():
                waiting = waiting or asyncio.ensure_future(anext(outputs))
                done, _pending = await asyncio.wait({waiting}, timeout=LOOK_S)
                if not done:
                    continue
                (output,) = waiting.result().outputs
                waiting, finish = None, output.finish_reason
                ended = {"length": LENGTH}.get(finish, STOP) if finish else ""
                emit(Piece(output.text, len(output.token_ids), ended))
                if finish:
                    return
            emit(Piece("", 0, STOP))
        finally:
            if waiting is not None:
                waiting.cancel()
            await self.engine.abort(key)

    def _sampling(self, options: Options):
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        greedy = options.temperature <= 0 or options.top_p <= 0
        chosen = {"temperature": 0.0} if greedy else {
            "temperature": max(options.temperature, LEAST_TEMPERATURE), "top_p": options.top_p, "seed": options.seed,
        }  # fmt: skip
        if options.constraint is not None:
            chosen["structured_outputs"] = options.constraint
        return SamplingParams(max_tokens=options.most, output_kind=RequestOutputKind.DELTA, **chosen)
