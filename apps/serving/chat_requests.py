"""Requests of the OpenAI API (chat completions and completions), as dictionaries from JSON: what is taken and refused.

What would change the answer and is not implemented is refused by its name; what says nothing about the answer is
ignored. `null` is the same as an absent field.
"""

from __future__ import annotations

from dataclasses import dataclass

from chat_engine import Options
from chat_fields import ApiError, read_bool, read_number, read_object, read_text, read_whole
from chat_tools import Tools, calls_of, schema_of, tools_of

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
OF_TOOLS, OF_SCHEMA = {"tools", "tool_choice", "parallel_tool_calls"}, {"response_format"}
UNSUPPORTED, UNIMPLEMENTED = "unsupported_parameter", "is not supported by this model's server"
WITHOUT_LIBRARY = "it needs the package llguidance among those of a model by transformers whose tokenizer that knows"
REASONS = {
    "tools": "the chat template of this model has none, or calls in a form that is not read here",
    "tool_choice": "there are no tools that this model can call",
    "response_format": f"JSON cannot be guaranteed: {WITHOUT_LIBRARY}",
}
MAX_STOPS, MAX_STOP = 4, 1000
COMPLETION_TOKENS = 16  # of /v1/completions, where max_tokens is not given
MAX_SEED = 2**63


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
    tools: Tools | None = None
    schema: dict | None = None

    def options(self, most: int, constraint: object | None = None) -> Options:
        """Return what an engine needs to know, with at most so many tokens, and what it has made of `schema`."""
        return Options(most, self.temperature, self.top_p, self.seed, constraint)


def read(body: bytes, *, chat: bool, tools: bool = False, constrains: bool = False) -> Request:
    """Return a request; `tools`: the model can call some, `constrains`: an answer can be made to follow a JSON schema.
    Raises ApiError, which names the field.
    """
    given = read_object(body)
    more = (OF_TOOLS if chat and tools else set()) | (OF_SCHEMA if chat and constrains else set())
    _refuse_others(given, (OF_CHAT if chat else OF_TEXT) | more)
    stream = read_bool(given, "stream")
    called = tools_of(given) if more >= OF_TOOLS else None
    schema = schema_of(given) if more >= OF_SCHEMA else None
    if called is not None and called.forced and not constrains:
        raise ApiError(f"tool_choice: a call cannot be required: {WITHOUT_LIBRARY}", "tool_choice", UNSUPPORTED)
    if called is not None and called.strict and not constrains:
        raise ApiError(f"tools: strict arguments cannot be guaranteed: {WITHOUT_LIBRARY}", "tools", UNSUPPORTED)
    if called is not None and schema is not None:
        raise ApiError("response_format: is not supported together with tools", "response_format", UNSUPPORTED)
    return Request(
        chat=chat,
        model=read_text(given, "model"),
        prompt=_messages(given, tools) if chat else _prompt(given),
        most=_most(given, chat),
        temperature=read_number(given, "temperature", 1, 2),
        top_p=read_number(given, "top_p", 1, 1),
        seed=read_whole(given, "seed", -MAX_SEED, MAX_SEED - 1),
        stops=_stops(given),
        stream=stream,
        with_usage=_usage_of(given, stream),
        tools=called,
        schema=schema if called is None else called.schema(),
    )


def _refuse_others(given: dict, known: set[str]) -> None:
    for name, value in given.items():
        if name in known:
            continue
        if name in NEUTRAL:
            if not any(type(value) is type(one) and value == one for one in _also_float(NEUTRAL[name])):
                raise ApiError(f"{name}: {REASONS.get(name, UNIMPLEMENTED)}", name, UNSUPPORTED)
        elif name not in IGNORED:
            raise ApiError(f"{name[:60]}: is no field that this server knows", name[:60], "unknown_parameter")


def _also_float(values: tuple) -> list:
    return [*values, *(float(value) for value in values if type(value) is int)]


def _messages(given: dict, tools: bool) -> list[dict]:
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError("messages: must be a list with at least one message", "messages")
    return [_message(f"messages[{at}]", message, tools) for at, message in enumerate(messages)]


def _message(where: str, given, tools: bool) -> dict:
    if not isinstance(given, dict):
        raise ApiError(f"{where}: must be an object with role and content", where)
    role, roles = given.get("role"), ROLES | ({"tool": "tool"} if tools else {})
    if not isinstance(role, str) or role not in roles:
        raise ApiError(f"{where}.role: must be one of {', '.join(roles)}", f"{where}.role")
    unknown = ("function_call", "audio") if tools and role == "assistant" else ("tool_calls", "function_call", "audio")
    if name := next((name for name in unknown if given.get(name)), ""):
        raise ApiError(f"{where}.{name}: {UNIMPLEMENTED}", f"{where}.{name}")
    message = {"role": roles[role]}
    if given.get("tool_calls"):
        message["tool_calls"] = calls_of(f"{where}.tool_calls", given["tool_calls"])
    if role == "tool":
        message["tool_call_id"] = read_text(given, "tool_call_id") or ""
    content = "" if "tool_calls" in message and given.get("content") is None else given.get("content")
    return message | {"content": content if content == "" else _content(f"{where}.content", content)}


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
            raise ApiError("prompt: one prompt in each request is supported", "prompt", UNSUPPORTED)
        prompt = prompt[0]
    tokens = isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt)
    if not isinstance(prompt, str) and not tokens:
        raise ApiError("prompt: must be a text, or a list of token ids", "prompt")
    return prompt


def _most(given: dict, chat: bool) -> int | None:
    name = "max_completion_tokens" if "max_completion_tokens" in given else "max_tokens"
    most = read_whole(given, name, 1, 1 << 31)
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
    return read_bool(options, "include_usage", "stream_options.")
