"""The engine of language models by Hugging Face's transformers: one answer at a time, a token after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import torch
from chat_constraints import Constraint, constraints_for
from chat_engine import LEAST_TEMPERATURE, LENGTH, STOP, Options, Piece, bound_operators
from chat_tokens import Tokenized
from tool_calls import form_of

UNFINISHED = "\ufffd"  # what a tokenizer writes for a character of which bytes are still to come
LONGEST_CHARACTER = 4  # tokens; what is no character after so many becomes none any more


class TransformersEngine(Tokenized):
    """A model in memory, on the GPU if there is one (see chat_engine.Engine)."""

    format, parallel, embeds = "transformers", 1, False

    def __init__(self, folder: Path, hugging_face):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model, self.tokenizer = hugging_face.opened(folder, self.device)
        self.context = hugging_face.context_of(self.model, self.tokenizer)
        self.chats = bool(self.tokenizer.chat_template)
        if self.chats:
            bound_operators()
        self.vocabulary = self.model.get_input_embeddings().weight.shape[0]
        ends = self.model.generation_config.eos_token_id
        ends = [ends] if isinstance(ends, int) else list(ends or [])
        self.ends = sorted({*ends, *filter(lambda end: end is not None, [self.tokenizer.eos_token_id])})
        self.tools = form_of(self._template_with_tools()) if self.chats else ""
        self.constraints = constraints_for(self.tokenizer, self.vocabulary, self.ends) if self.chats else None
        self.constrains = self.constraints is not None

    def constraint(self, schema: dict) -> Constraint:
        """Return what makes one answer follow a JSON schema."""
        return self.constraints.following(schema)

    def calling(self, functions: list[tuple[str, dict]]) -> Constraint:
        """Return what makes the calls in one answer follow the functions' JSON schemas."""
        return self.constraints.calling(self.tools, functions)

    def generate(
        self, tokens: list[int], options: Options, emit: Callable[[Piece], None], cancelled: threading.Event
    ) -> None:
        """Continue the prompt by transformers' own loop, which calls back for each token."""
        if options.seed is None:
            torch.seed()
        else:
            torch.manual_seed(options.seed % 2**63)
        prompt = torch.tensor([tokens], dtype=torch.long, device=self.device)
        pieces = Pieces(self.tokenizer, emit)

        constraint = options.constraint

        def is_over(ids, scores, **_rest):
            if constraint is not None:
                constraint.follow(int(ids[0, -1]))
            over = cancelled.is_set() or (constraint is not None and constraint.is_complete())
            return torch.full((ids.shape[0],), over, dtype=torch.bool, device=ids.device)

        with torch.inference_mode():
            self.model.generate(
                input_ids=prompt, attention_mask=torch.ones_like(prompt), generation_config=self._config(options),
                streamer=pieces, stopping_criteria=[is_over],
                logits_processor=[constraint.mask] if constraint is not None else [],
            )  # fmt: skip
        complete = constraint is not None and constraint.is_complete()
        pieces.finish(STOP if complete or pieces.last in self.ends else LENGTH)

    def _config(self, options: Options):
        """Return how to choose tokens. Of the model's own defaults only the tokens that end a text count."""
        from transformers import GenerationConfig

        chosen = {"do_sample": False}
        if options.temperature > 0 and options.top_p > 0:
            chosen = {"do_sample": True, "top_p": options.top_p, "top_k": 0}
            chosen["temperature"] = max(options.temperature, LEAST_TEMPERATURE)
        ends = {"eos_token_id": self.ends, "pad_token_id": self.ends[0]} if self.ends else {}
        return GenerationConfig(
            max_new_tokens=options.most, num_beams=1, repetition_penalty=1.0, no_repeat_ngram_size=0, **chosen, **ends
        )


class Pieces:
    """Makes text of tokens as they come, in transformers' form of a streamer. A character is complete, or not sent."""

    def __init__(self, tokenizer, emit: Callable[[Piece], None]):
        self.tokenizer, self.emit = tokenizer, emit
        self.tokens: list[int] = []
        self.begin = self.sent = 0  # of the tokens that are decoded together, and that were sent
        self.last: int | None = None
        self.prompt = True

    def put(self, value) -> None:
        """Take the prompt, which comes first, or a token."""
        if self.prompt:
            self.prompt = False
            return
        for token in value.reshape(-1).tolist():
            self.tokens.append(token)
            self.last = token
            self.emit(Piece(self._text(whole=False)))

    def end(self) -> None:
        """Do nothing: `finish` knows why the answer has ended."""

    def finish(self, why: str) -> None:
        """Send what is left, and the end."""
        self.emit(Piece(self._text(whole=True), 0, why))

    def _text(self, *, whole: bool) -> str:
        """Return the text of the tokens since the last call. They are decoded with those before them, since spaces
        depend on these.
        """
        before = self._decoded(self.tokens[self.begin : self.sent])
        text = self._decoded(self.tokens[self.begin :])
        waits = text.endswith(UNFINISHED) and len(self.tokens) - self.sent < LONGEST_CHARACTER
        if len(text) <= len(before) or (waits and not whole):
            return ""
        self.begin, self.sent = self.sent, len(self.tokens)
        return text[len(before) :]

    def _decoded(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
