"""Requests of the OpenAI API (chat completions and completions), as dictionaries from JSON: what is taken and refused.

What would change the answer and is not implemented is refused by its name; what says nothing about the answer is
ignored. `null` is the same as an absent field.
"""

from __future__ import annotations

from dataclasses import dataclass

import api_errors
import orjson
from chat_engine import Options

COMMON = {"model", "temperature", "top_p", "max_tokens", "seed", "stop", "stream", "stream_options"}
OF_CHAT = COMMON | {"messages", "max_completion_tokens"}
OF_TEXT = COMMON | {"prompt"}
IGNORED = {"user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier", "store", "parallel_tool_calls"}
NEUTRAL = {  # values with which a field asks for nothing
    "n": (1,), "best_of": (1,), "echo": (False,), "logprobs": (False,), "top_logprobs": (0,), "logit_bias": ({},),
    "presence_penalty": (0,), "frequency_penalty": (0,), "tools": ([],), "functions": ([],), "suffix": ("",),
    "tool_choice": ("none", "auto"), "function_call": ("none", "auto"), "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}  # fmt: skip
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
MAX_STOPS, MAX_STOP = 4, 1000
COMPLETION_TOKENS = 16  # of /v1/completions, where max_tokens is not given
MAX_SEED = 2**63


class ApiError(Exception):
    """A refusal, or a failure, in the API's form."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.headers = [(b"retry-after", b"1")] if status in (429, 503) else []

    def body(self) -> dict:
        """Return the body of the response."""
        return api_errors.content(self.status, str(self), self.param, self.code)


@dataclass(frozen=True)
class Request:
    """A request: `prompt` is a text, a list of tokens, or a list of messages (`chat`)."""

    chat: bool
    model: str | None
    prompt: str | list
    most: int | None
    temperature: float
    top_p: float
    seed: int | None
    stops: tuple[str, ...]
    stream: bool
    with_usage: bool

    def options(self, most: int) -> Options:
        """Return what an engine needs to know, with at most so many tokens."""
        return Options(most, self.temperature, self.top_p, self.seed)


def read(body: bytes, *, chat: bool) -> Request:
    """Return a request. Raises ApiError, which names the field."""
    try:
        given = orjson.loads(body)
    except ValueError as problem:
        raise ApiError(f"the body is no valid JSON ({problem})")
    if not isinstance(given, dict):
        raise ApiError("the body must be a JSON object")
    given = {name: value for name, value in given.items() if value is not None}
    _refuse_others(given, OF_CHAT if chat else OF_TEXT)
    stream = _bool(given, "stream")
    return Request(
        chat=chat,
        model=_text(given, "model"),
        prompt=_messages(given) if chat else _prompt(given),
        most=_most(given, chat),
        temperature=_number(given, "temperature", 1, 2),
        top_p=_number(given, "top_p", 1, 1),
        seed=_whole(given, "seed", -MAX_SEED, MAX_SEED - 1),
        stops=_stops(given),
        stream=stream,
        with_usage=_usage_of(given, stream),
    )


def _refuse_others(given: dict, known: set[str]) -> None:
    for name, value in given.items():
        if name in NEUTRAL:
            if not any(type(value) is type(one) and value == one for one in _also_float(NEUTRAL[name])):
                raise ApiError(f"{name[:60]}: is not supported by this model's server", name, "unsupported_parameter")
        elif name not in known and name not in IGNORED:
            raise ApiError(f"{name[:60]}: is no field that this server knows", name[:60], "unknown_parameter")


def _also_float(values: tuple) -> list:
    return [*values, *(float(value) for value in values if type(value) is int)]


def _messages(given: dict) -> list[dict[str, str]]:
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError("messages: must be a list with at least one message", "messages")
    return [_message(f"messages[{at}]", message) for at, message in enumerate(messages)]


def _message(where: str, given) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ApiError(f"{where}: must be an object with role and content", where)
    role = given.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise ApiError(f"{where}.role: must be one of {', '.join(ROLES)}", f"{where}.role")
    if name := next((name for name in ("tool_calls", "function_call", "audio") if given.get(name)), ""):
        raise ApiError(f"{where}.{name}: is not supported by this model's server", f"{where}.{name}")
    return {"role": ROLES[role], "content": _content(f"{where}.content", given.get("content"))}


def _content(where: str, given) -> str:
    if isinstance(given, str):
        return given
    if not isinstance(given, list) or not given:
        raise ApiError(f"{where}: must be a text, or a list of parts of the type text", where)
    texts = []
    for at, part in enumerate(given):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ApiError(f"{where}[{at}]: must be a part of the type text; this model takes no other", where)
        texts.append(part["text"])
    return "\n".join(texts)


def _prompt(given: dict) -> str | list[int]:
    prompt = given.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise ApiError("prompt: one prompt in each request is supported", "prompt", "unsupported_parameter")
        prompt = prompt[0]
    tokens = isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt)
    if not isinstance(prompt, str) and not tokens:
        raise ApiError("prompt: must be a text, or a list of token ids", "prompt")
    return prompt


def _most(given: dict, chat: bool) -> int | None:
    name = "max_completion_tokens" if "max_completion_tokens" in given else "max_tokens"
    most = _whole(given, name, 1, 1 << 31)
    return most if most is not None or chat else COMPLETION_TOKENS


def _stops(given: dict) -> tuple[str, ...]:
    stops = given.get("stop", [])
    stops = [stops] if isinstance(stops, str) else stops
    texts = isinstance(stops, list) and all(isinstance(stop, str) and 0 < len(stop) <= MAX_STOP for stop in stops)
    if not texts or len(stops) > MAX_STOPS:
        raise ApiError(f"stop: must be a text or a list of at most {MAX_STOPS} texts that are not empty", "stop")
    return tuple(stops)


def _usage_of(given: dict, stream: bool) -> bool:
    options = given.get("stream_options", {})
    if not isinstance(options, dict):
        raise ApiError("stream_options: must be an object", "stream_options")
    if options and not stream:
        raise ApiError("stream_options: is for requests with stream", "stream_options")
    if other := set(options) - {"include_usage", "include_obfuscation"}:
        raise ApiError(f"stream_options: {min(other)[:60]} is not supported", "stream_options")
    return _bool(options, "include_usage", "stream_options.")


def _bool(given: dict, name: str, within: str = "") -> bool:
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise ApiError(f"{within}{name}: must be true or false", within + name)
    return bool(value)


def _text(given: dict, name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ApiError(f"{name}: must be a text", name)
    return value


def _number(given: dict, name: str, default: float, most: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ApiError(f"{name}: must be a number from 0 to {most}", name)
    return float(value)


def _whole(given: dict, name: str, least: int, most: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        raise ApiError(f"{name}: must be a whole number, at least {least}", name)
    return value
