"""Answers that follow a JSON schema, or have calls of tools that do: at each step only tokens are possible that
continue it, by the library llguidance, which is one of the model's own packages.
"""

from __future__ import annotations

import contextlib
import json

import numpy as np
import torch
from chat_engine import WrongPrompt
from tool_calls import BEGIN, END, HERMES

# Some models write white space without end where it is allowed.
OPTIONS = "x-guidance"  # with which a schema could turn the guarantee off
STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def constraints_for(tokenizer, vocabulary: int, ends: list[int]) -> Constraints | None:
    """Return what constrains answers of a model, None where its packages or its tokenizer do not allow it."""
    try:
        return Constraints(tokenizer, vocabulary, ends)
    except ImportError:
        return None
    except Exception as problem:  # it knows the usual kinds of tokenizers only
        print(f"answers cannot be made to follow a JSON schema: {type(problem).__name__}: {problem}", flush=True)
        return None


class Constraints:
    """The tokens of a model as llguidance knows them."""

    def __init__(self, tokenizer, vocabulary: int, ends: list[int]):
        import llguidance.hf

        self.library, self.vocabulary = llguidance, vocabulary
        self.tokens = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=ends or None)

    def following(self, schema: dict) -> Constraint:
        """Return the constraint of one answer. Raises WrongPrompt for a schema that cannot be followed."""
        try:
            known = json.dumps({name: one for name, one in schema.items() if name != OPTIONS})
            grammar = self.library.LLMatcher.grammar_from_json_schema(known, overrides=STYLE)
        except (ValueError, RecursionError) as problem:
            raise WrongPrompt(_short(problem)) from None
        return Constraint(self._matcher(grammar), self.vocabulary)

    def calling(self, form: str, functions: list[tuple[str, dict]]) -> Constraint:
        """Return the constraint of an answer that is a text, or has calls in a form of tool_calls.py, whose arguments
        follow the functions' JSON schemas. Raises WrongPrompt for schemas that cannot be followed.
        """
        return Constraint(self._calls(form, functions)[1], self.vocabulary)

    def grammar_of_calls(self, form: str, functions: list[tuple[str, dict]]) -> str:
        """Return the grammar of such an answer. Raises WrongPrompt."""
        return self._calls(form, functions)[0]

    def _calls(self, form: str, functions: list[tuple[str, dict]]) -> tuple:
        """Return a grammar of calls, and what matches it. Raises WrongPrompt."""
        try:
            grammars = _hermes(self.library, functions) if form == HERMES else [_llama(functions)]
            compiled = [(one, self.library.LLMatcher.grammar_from_lark(one)) for one in grammars]
        except (ValueError, RecursionError) as problem:
            raise WrongPrompt(_short(problem)) from None
        *others, last = compiled
        for grammar, known in others:
            with contextlib.suppress(WrongPrompt):
                return grammar, self._matcher(known)
        return last[0], self._matcher(last[1])

    def _matcher(self, grammar: str):
        """Return what matches a grammar. Raises WrongPrompt."""
        matcher = self.library.LLMatcher(self.tokens, grammar, log_level=0)
        if not matcher.is_error():
            matcher.compute_bitmask()  # whether there is a first token at all
        if matcher.is_error():
            raise WrongPrompt(_short(matcher.get_error()))
        return matcher


def _hermes(library, functions: list[tuple[str, dict]]) -> list[str]:
    """Return the grammars of calls in tags within a text: the tag as a token of its own, and as letters."""
    tags = [
        library.StructTag(
            trigger=BEGIN,
            begin=f'{BEGIN}\n{{"name": {json.dumps(name)}, "arguments": ',
            grammar=styled(schema),
            end=f"}}\n{END}",
        )
        for name, schema in functions
    ]
    return [library.StructTag.to_grammar(tags, assume_special=special) for special in (True, False)]


def _llama(functions: list[tuple[str, dict]]) -> str:
    """Return the grammar of an answer that is a text, or calls as JSON."""
    calls = []
    for at, (name, schema) in enumerate(functions):
        begin = json.dumps(f'{{"name": {json.dumps(name)}, "parameters": ')
        calls.append(f'call_{at}: {begin} %json {json.dumps(styled(schema))} "}}"')
    one = " | ".join(f"call_{at}" for at in range(len(functions)))
    rules = [r"%llguidance {}", "start: TEXT | calls", 'calls: call ("; " call)*', f"call: {one}", *calls]
    return "\n".join([*rules, r"TEXT: /([^{<\s](.|\n)*)?/", ""])


def styled(schema: dict) -> dict:
    """Return a JSON schema with how its JSON is written."""
    return {**{name: one for name, one in schema.items() if name != OPTIONS}, OPTIONS: STYLE}


class Constraint:
    """Where one answer is in its schema; in transformers' forms of a processor of logits and of a criterion to stop."""

    def __init__(self, matcher, vocabulary: int):
        self.matcher, self.vocabulary = matcher, vocabulary

    def mask(self, _ids, scores):
        """Return the scores, of which those of impossible tokens are the least."""
        if self.is_complete():
            return scores
        bits = np.frombuffer(self.matcher.compute_bitmask(), np.uint8)
        self._require_none_wrong()
        possible = np.zeros(scores.shape[-1], bool)
        known = np.unpackbits(bits, bitorder="little")[: scores.shape[-1]]
        possible[: len(known)] = known
        return scores.masked_fill(~torch.from_numpy(possible).to(scores.device), float("-inf"))

    def follow(self, token: int) -> None:
        """Take the token that was chosen."""
        if not self.is_complete():
            self.matcher.consume_token(token)
            self._require_none_wrong()

    def is_complete(self) -> bool:
        """Return whether nothing can follow."""
        return self.matcher.is_stopped()

    def _require_none_wrong(self) -> None:
        if self.matcher.is_error():
            raise WrongPrompt(f"the JSON schema cannot be followed further: {_short(self.matcher.get_error())}")


def _short(problem: object) -> str:
    """Return what the library says, without the state of its parser."""
    return str(problem).strip().partition("\n")[0][:500]
