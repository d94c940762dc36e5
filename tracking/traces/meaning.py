"""What the attributes of a span say of a language model: type, model, tokens, cost, input, output and messages.

Read are OpenTelemetry's conventions for generative AI, also as earlier releases and OpenLLMetry had them, OpenInference
(Arize Phoenix), and MLflow's own attributes, whose values are JSON.
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from django.conf import settings

from kernel.lenient import text_of

TYPES = ("mlflow.spanType", "openinference.span.kind", "traceloop.span.kind", "gen_ai.operation.name")
OPERATIONS = {
    "chat": "CHAT_MODEL", "text_completion": "LLM", "generate_content": "LLM", "embeddings": "EMBEDDING",
    "execute_tool": "TOOL", "invoke_agent": "AGENT", "create_agent": "AGENT", "retrieval": "RETRIEVER",
}  # fmt: skip
MODELS = (
    "gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "embedding.model_name", "mlflow.llm.model",
    "ai.response.model", "ai.model.id", "llm.request.model",
)  # fmt: skip
INPUT_TOKENS = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.promptTokens",
    "ai.usage.inputTokens", "llm.usage.prompt_tokens",
)  # fmt: skip
OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
    "ai.usage.completionTokens", "ai.usage.outputTokens", "llm.usage.completion_tokens",
)  # fmt: skip
COSTS = ("gen_ai.usage.cost", "llm.cost.total", "gen_ai.usage.total_cost", "operation.cost")
SESSIONS = (
    "session.id", "gen_ai.conversation.id", "traceloop.association.properties.session_id", "langfuse.session.id",
)  # fmt: skip
END_USERS = ("user.id", "enduser.id", "gen_ai.user.id", "langfuse.user.id")
INPUTS = (
    "mlflow.spanInputs", "input.value", "traceloop.entity.input", "gen_ai.input.messages", "gen_ai.prompt",
    "ai.prompt.messages",
)  # fmt: skip
OUTPUTS = (
    "mlflow.spanOutputs", "output.value", "traceloop.entity.output", "gen_ai.output.messages", "gen_ai.completion",
    "ai.response.text",
)  # fmt: skip
MESSAGE_LISTS = ("gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages")
NUMBERED = re.compile(
    r"(?:llm\.(?:input|output)_messages|gen_ai\.(?:prompt|completion))\.(\d{1,4})\.(?:message\.)?(role|content)",
    re.ASCII,
)
ROLE_EVENTS = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message", re.ASCII)
WHOLE = (
    ("gen_ai.prompt", "user"), ("gen_ai.completion", "assistant"), ("ai.prompt.messages", "user"),
    ("ai.response.text", "assistant"),
)  # fmt: skip
MAX_MESSAGES = 500  # of one span
MAX_TOKENS = 2**40  # of one span: the sum of all spans of a trace fits into its column
MAX_COST = 1e12  # US dollars of one span; more is no cost, and a sum of such numbers is no number


class Said(NamedTuple):
    role: str
    text: str


def plain(value: object) -> object:
    """Return the value that a text has as JSON; another text as it is."""
    if isinstance(value, str) and value[:1] in tuple('{["') + tuple("-0123456789tfn"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def type_of(attributes: Mapping[str, object]) -> str:
    """Return the type in MLflow's words, such as LLM, CHAIN and TOOL; "" where nothing says it."""
    for name in TYPES:
        value = plain(attributes.get(name))
        if isinstance(value, str) and value:
            return OPERATIONS.get(value.lower(), value.upper())[:50]
    return ""


def model_of(attributes: Mapping[str, object]) -> str:
    found = next((value for name in MODELS if isinstance(value := plain(attributes.get(name)), str) and value), "")
    if not found:
        given = plain(attributes.get("mlflow.spanInputs"))
        found = given.get("model") if isinstance(given, dict) else ""
    return found[:250] if isinstance(found, str) else ""


def tokens_of(attributes: Mapping[str, object]) -> tuple[int | None, int | None]:
    """Return the input and output tokens; None for what is not said."""
    usage = plain(attributes.get("mlflow.chat.tokenUsage"))
    usage = usage if isinstance(usage, dict) else {}
    sent = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    names = (INPUT_TOKENS, OUTPUT_TOKENS)
    given = (_first_count(attributes, some) for some in names)
    return tuple(one if one is not None else other for one, other in zip(sent, given, strict=True))


def _first_count(attributes: Mapping[str, object], names: Sequence[str]) -> int | None:
    return next((count for name in names if (count := _count(plain(attributes.get(name)))) is not None), None)


def _count(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def cost_of(attributes: Mapping[str, object], model: str, tokens: tuple[int | None, int | None]) -> float | None:
    """Return US dollars: as the span says, else by the prices of MLP_TRACE_PRICES; None where neither is known."""
    said = plain(attributes.get("mlflow.llm.cost"))
    values = [said.get("total_cost")] if isinstance(said, dict) else []
    values += [plain(attributes.get(name)) for name in COSTS]
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_COST:
            return float(value)
    price = price_of(model)
    if price is None or tokens == (None, None):
        return None
    return ((tokens[0] or 0) * price[0] + (tokens[1] or 0) * price[1]) / 1_000_000


def price_of(model: str) -> tuple[float, float] | None:
    """Return the US dollars of a million input and output tokens. The longest entry with which the model begins
    counts, since providers add dates to the names.
    """
    prices = _sorted(settings.TRACE_PRICES)
    name = model.lower()
    return next((price for beginning, price in prices if name.startswith(beginning)), None)


@lru_cache(maxsize=4)
def _sorted(prices: tuple) -> list:
    return sorted(prices, key=lambda entry: -len(entry[0]))


def first_text(attributes: Mapping[str, object], names: Sequence[str]) -> str:
    """Return the first of these attributes that is present, as text."""
    return next((text for name in names if (text := text_of(plain(attributes.get(name))))), "")


def preview(attributes: Mapping[str, object], names: Sequence[str]) -> str:
    """Return the beginning of the input or output: of messages the last one's text, else the value."""
    for name in names:
        value = plain(attributes.get(name))
        if value in (None, "", [], {}):
            continue
        found = _messages_in(value)
        return found[-1].text if found else text_of(value)
    return ""


# --- messages ---------------------------------------------------------------------------------------------------------
def messages(attributes: Mapping[str, object], events: Sequence[Mapping]) -> list[Said]:
    """Return the messages of a conversation with a model, in order; none where the span has none."""
    found: list[Said] = []
    for name in MESSAGE_LISTS:
        default = "system" if name == MESSAGE_LISTS[0] else "assistant" if name == MESSAGE_LISTS[2] else "user"
        found += _messages_in(plain(attributes.get(name)), default)
    found = found or _of_events(events) or _numbered(attributes)
    for name in ("mlflow.spanInputs", "input.value", "mlflow.spanOutputs", "output.value") if not found else ():
        found += _messages_in(plain(attributes.get(name)), "assistant" if "utput" in name else "user")
    if not found:
        for name, role in WHOLE:
            value = plain(attributes.get(name))
            found += _messages_in(value, role) or ([Said(role, text_of(value))] if value else [])
    return found[:MAX_MESSAGES]


def _messages_in(value: object, default: str = "user") -> list[Said]:
    """Return the messages of a value: a list of them, {"messages": …}, or {"choices": [{"message": …}]}."""
    if isinstance(value, dict):
        for name in ("messages", "input", "choices", "output"):
            if isinstance(value.get(name), list):
                return _messages_in(value[name], "assistant" if name in ("choices", "output") else default)
        value = [value]
    if not isinstance(value, list):
        return []
    found = []
    for item in value[:MAX_MESSAGES]:
        inner = item.get("message") if isinstance(item, dict) and isinstance(item.get("message"), dict) else item
        if not isinstance(inner, dict) or not inner.keys() & {"content", "parts", "tool_calls", "role"}:
            if isinstance(inner, dict) and isinstance(inner.get("content", inner.get("text")), str):
                found.append(Said(default, text_of(inner.get("content", inner.get("text")))))
            continue
        role = inner.get("role")
        found.append(Said(role[:50] if isinstance(role, str) and role else default, _text_of_message(inner)))
    return found


def _text_of_message(message: Mapping) -> str:
    """Return the text of a message: of its parts one after the other, and the calls of tools as JSON."""
    content = message.get("content", message.get("parts"))
    texts = [_text_of_part(part) for part in content] if isinstance(content, list) else [text_of(content)]
    calls = message.get("tool_calls")
    return "\n".join(text for text in (*texts, text_of(calls) if calls else "") if text)


def _text_of_part(part: object) -> str:
    if isinstance(part, dict):
        return next((part[name] for name in ("text", "content") if isinstance(part.get(name), str)), text_of(part))
    return text_of(part)


def _of_events(events: Sequence[Mapping]) -> list[Said]:
    """Return the messages that are events of the span, as earlier releases of the convention had them."""
    found = []
    for event in events:
        attributes, name = event.get("attributes") or {}, event.get("name", "")
        if name == "gen_ai.client.inference.operation.details":
            found += messages(attributes, ())
        elif match := ROLE_EVENTS.fullmatch(name):
            found.append(Said(match[1], text_of(plain(attributes.get("content")))))
        elif name == "gen_ai.choice":
            said = plain(attributes.get("message", attributes.get("content")))
            found += _messages_in(said, "assistant") or [Said("assistant", text_of(said))]
        elif name == "gen_ai.content.prompt":
            found += _messages_in(plain(attributes.get("gen_ai.prompt")), "user")
        elif name == "gen_ai.content.completion":
            found += _messages_in(plain(attributes.get("gen_ai.completion")), "assistant")
    return found


def _numbered(attributes: Mapping[str, object]) -> list[Said]:
    """Return the messages that are one attribute for each field, as OpenInference and OpenLLMetry have them."""
    parts: dict[tuple[bool, int], dict[str, str]] = {}
    for name, value in attributes.items():
        if match := NUMBERED.fullmatch(name):
            is_output = "output" in name or "completion" in name
            parts.setdefault((is_output, int(match[1])), {})[match[2]] = text_of(value)
    return [
        Said(part.get("role") or ("assistant" if is_output else "user"), part.get("content", ""))
        for (is_output, _number), part in sorted(parts.items(), key=lambda entry: entry[0])
    ]
