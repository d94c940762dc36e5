"""The engine of language models as GGUF by llama.cpp, through its Python package: one answer at a time."""

from __future__ import annotations

import codecs
import os
import threading
from collections.abc import Callable
from pathlib import Path

from chat_engine import LENGTH, STOP, Options, Piece, WrongPrompt, bound_operators, rendered
from tool_calls import BEGIN, HERMES, form_of

MOST_CONTEXT = 8192  # tokens: the memory for all of them is taken at the start
UNKNOWN_CONTEXT = 2048
BATCH = 256  # tokens of a prompt between two looks at whether the answer is still wanted
SEEDS = 2**32 - 1  # llama.cpp takes the largest one for none


class LlamaCppEngine:
    """A model in memory, on the GPU where the package was built for one (see chat_engine.Engine)."""

    format, parallel, embeds, constrains = "gguf", 1, False, False

    def __init__(self, path: Path, gguf):
        about, path = gguf.verify(path), gguf.parts_of(path)[0]
        self.context = min(about["context"] or UNKNOWN_CONTEXT, MOST_CONTEXT)
        self.llama = gguf.opened(path, n_ctx=self.context, n_batch=BATCH, n_ubatch=BATCH)
        import llama_cpp

        self.library = llama_cpp
        template = self.llama.metadata.get("tokenizer.chat_template")
        self.chats, self.tools = bool(template), form_of(template or "")
        self.formatter = self._formatter(template) if template else None

    def _formatter(self, template: str):
        """Return what writes messages by the model's template, in a sandbox."""
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        bound_operators()
        first, last = (self._word(token) for token in (self.llama.token_bos(), self.llama.token_eos()))
        return Jinja2ChatFormatter(template=template, bos_token=first, eos_token=last)

    def _word(self, token: int) -> str:
        return self.llama.detokenize([token], special=True).decode(errors="replace") if token >= 0 else ""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt; the empty one is the token with which texts begin."""
        tokens = self.llama.tokenize(text.encode(errors="replace"), add_bos=True, special=False)
        if tokens:
            return tokens
        first = next((token for token in (self.llama.token_bos(), self.llama.token_eos()) if token >= 0), None)
        if first is None:
            raise WrongPrompt("must not be empty, since the model has no token with which texts begin")
        return [first]

    def encode_messages(self, messages: list[dict], tools: tuple[dict, ...] = (), calling: bool = False) -> list[int]:
        """Return the tokens of messages by the model's template, which may refuse some."""
        text = rendered(lambda: self.formatter(messages=messages, tools=list(tools) or None).prompt)
        text += f"{BEGIN}\n" if calling and self.tools == HERMES else ""
        return self.llama.tokenize(text.encode(errors="replace"), add_bos=False, special=True) or self.encode("")

    def encode_tokens(self, tokens: list[int]) -> list[int]:
        """Return tokens that a caller sent."""
        if odd := [token for token in tokens if not 0 <= token < self.llama.n_vocab()]:
            raise WrongPrompt(f"{odd[0]} is no token of the model, which has {self.llama.n_vocab()}")
        return tokens

    def constraint(self, schema: dict) -> object:
        """Raise WrongPrompt: what llama.cpp makes of a schema does not follow all of it."""
        raise WrongPrompt("this engine cannot guarantee it")

    def generate(
        self, tokens: list[int], options: Options, emit: Callable[[Piece], None], cancelled: threading.Event
    ) -> None:
        """Continue the prompt. A character is complete, or not sent."""
        llama, decoder = self.llama, codecs.getincrementaldecoder("utf-8")("replace")
        seed = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
        llama.set_seed(seed % SEEDS)
        llama.reset()
        for at in range(0, len(tokens) - 1, BATCH):
            if cancelled.is_set():
                return emit(Piece("", 0, STOP))
            llama.eval(tokens[at : min(at + BATCH, len(tokens) - 1)])
        vocabulary = llama._model.vocab
        for made, token in enumerate(llama.generate(tokens, **_sampling(options)), 1):
            over = cancelled.is_set() or self.library.llama_vocab_is_eog(vocabulary, token)
            emit(Piece("" if over else decoder.decode(llama.detokenize([token], prev_tokens=tokens)), 1))
            if over or made >= options.most:
                return emit(Piece(decoder.decode(b"", final=True), 0, STOP if over else LENGTH))
        return None


def _sampling(options: Options) -> dict:
    """Return how to choose tokens; llama.cpp's own defaults do not count."""
    temperature = options.temperature if options.top_p > 0 else 0.0
    return {"temp": temperature, "top_p": options.top_p, "top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}
