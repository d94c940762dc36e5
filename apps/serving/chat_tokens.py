"""How prompts become tokens by a tokenizer of Hugging Face's; shared by the engines of such models."""

from __future__ import annotations

from chat_engine import WrongPrompt, rendered
from tool_calls import BEGIN, HERMES


class Tokenized:
    """What makes tokens of a prompt: `tokenizer`, `vocabulary` and `tools` are its own."""

    def _template_with_tools(self) -> str:
        try:
            return self.tokenizer.get_chat_template(tools=[{}])
        except ValueError:  # several, and none of them is for all
            return ""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt; the empty one is the token with which texts begin."""
        return self._some(self.tokenizer.encode(text))

    def encode_messages(self, messages: list[dict], tools: tuple[dict, ...] = (), calling: bool = False) -> list[int]:
        """Return the tokens of messages by the tokenizer's template, which may refuse some, such as a system prompt."""
        given = {"tools": list(tools) or None, "tokenize": False, "add_generation_prompt": True}
        text = rendered(lambda: self.tokenizer.apply_chat_template(messages, **given))
        text += f"{BEGIN}\n" if calling and self.tools == HERMES else ""  # the answer goes on behind it
        text = text.encode(errors="replace").decode()  # half a surrogate pair, of the arguments of a call
        return self._some(self.tokenizer.encode(text, add_special_tokens=False))

    def encode_tokens(self, tokens: list[int]) -> list[int]:
        """Return tokens that a caller sent."""
        if odd := [token for token in tokens if not 0 <= token < self.vocabulary]:
            raise WrongPrompt(f"{odd[0]} is no token of the model, which has {self.vocabulary}")
        return tokens

    def _some(self, tokens: list[int]) -> list[int]:
        if tokens:
            return tokens
        first = self.tokenizer.bos_token_id
        first = first if first is not None else self.tokenizer.eos_token_id
        if first is None:
            raise WrongPrompt("must not be empty, since the model has no token with which texts begin")
        return [first]
