"""Tools and the form of answers in OpenAI's protocol: what a request may say, and what is made of the model's text."""

from __future__ import annotations

import json

import pytest

from .language_process import Writer, ask, serving
from .test_openapi import require_valid

__all__ = ["serving"]

CHAT = "/v1/chat/completions"
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "time"}},
]
PARIS = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris, été"}}\n</tool_call>'
ROME = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
TAGGED = '<tool_call>{"name": "weather", "arguments": {"city": "a</tool_call>{b"}}</tool_call>'
PACKED = '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Bern\\"}"}</tool_call>'
NOW = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'


@pytest.fixture
def answered(serving):
    """Return a function that answers a request with a text of the model: status, body or events, and the engine."""

    def get(text: str, *, form: str = "hermes", able: bool = True, **fields):
        engine = Writer(text)
        engine.tools, engine.constrains = form, able
        content = {"messages": [{"role": "user", "content": "hey"}], **fields}
        status, events = ask(serving("chat").Chat(engine, "lm"), CHAT, content)
        return status, events if fields.get("stream") else events[0], engine

    return get


def calls_of(message: dict) -> list[tuple[str, dict]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message["tool_calls"]]


@pytest.mark.parametrize(
    ("text", "content", "called"),
    [
        (PARIS, None, [("weather", {"city": "Paris, été"})]),
        (f"Let me see. \n\n{PARIS}\n{NOW}", "Let me see.", [("weather", {"city": "Paris, été"}), ("time", {})]),
        (PARIS.removesuffix("</tool_call>"), None, [("weather", {"city": "Paris, été"})]),
        (TAGGED, None, [("weather", {"city": "a</tool_call>{b"})]),
        (PACKED, None, [("weather", {"city": "Bern"})]),
    ],
)
def test_calls_in_the_text_are_those_of_the_answer(answered, text, content, called):
    status, body, engine = answered(text, tools=TOOLS)
    choice = body["choices"][0]
    assert (status, choice["finish_reason"], choice["message"]["content"]) == (200, "tool_calls", content)
    assert calls_of(choice["message"]) == called
    assert len({call["id"] for call in choice["message"]["tool_calls"]}) == len(called)
    assert (engine.seen[1], engine.seen[2], engine.schema) == (tuple(TOOLS), False, None)


@pytest.mark.parametrize(
    "text",
    ["just text ", "a < b and <tool", "<tool_call>{</tool_call>",
     '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
     '<tool_call>{"name": "time", "arguments": "no object"}</tool_call>', "<tool_call>" + "[" * 20_000],
)  # fmt: skip
def test_what_is_no_call_of_an_offered_tool_stays_text(answered, text):
    text = text[:9000]
    _status, body, _engine = answered(text, tools=TOOLS)
    choice = body["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (text, "stop")
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_arguments_are_valid_json_or_the_text_is_no_call(answered, number):
    text = f'<tool_call>{{"name": "weather", "arguments": {{"city": {number}}}}}</tool_call>'
    _status, body, _engine = answered(text, tools=TOOLS)
    assert body["choices"][0]["message"] == {"role": "assistant", "content": text}


def test_half_a_surrogate_pair_stays_escaped(answered):
    call = PARIS.replace("Paris, été", r"\ud800é")
    for stream in (False, True):
        status, body, _engine = answered(call, tools=TOOLS, stream=stream)
        choices = [event["choices"][0] for event in (body if stream else [body])]
        [given] = [call for one in choices for call in one.get("delta", one.get("message")).get("tool_calls", [])]
        assert (status, given["function"]["arguments"]) == (200, r'{"city": "\ud800\u00e9"}')


def test_schemas_that_a_call_must_follow_are_bounded(answered):
    deep: dict = {}
    for _ in range(400):
        deep = {"properties": {"a": deep}}
    for schema in ({"enum": ["x" * 200_000]}, deep):
        tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
        status, body, _engine = answered("{}", tools=tools, tool_choice="required")
        assert (status, body["error"]["param"]) == (400, "tools")
        assert answered("hey", tools=tools)[0] == 200, "it is a text for the model only"


def test_a_stream_has_each_call_in_one_piece(answered):
    _status, events, _engine = answered(f"Hm <b>. {PARIS}{NOW}", tools=TOOLS, stream=True)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content", "") for delta in deltas) == "Hm <b>."
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [(call["index"], call["function"]["name"]) for call in calls] == [(0, "weather"), (1, "time")]
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_one_call_ends_the_answer_where_only_one_may_be(answered):
    _status, body, _engine = answered(PARIS + ROME, tools=TOOLS, parallel_tool_calls=False)
    assert calls_of(body["choices"][0]["message"]) == [("weather", {"city": "Paris, été"})]
    assert body["usage"]["completion_tokens"] == len(PARIS)


def test_calls_of_llama_are_json_in_place_of_the_answer(answered):
    text = '{"name": "weather", "parameters": {"city": "Oslo"}}; {"name": "time", "parameters": {}}'
    _status, body, _engine = answered(text, form="llama", tools=TOOLS)
    assert calls_of(body["choices"][0]["message"]) == [("weather", {"city": "Oslo"}), ("time", {})]
    for said in ('{"a": 1}', "Hello {", " {"):
        _status, body, _engine = answered(said, form="llama", tools=TOOLS)
        assert body["choices"][0]["message"]["content"] == said


def test_a_required_call_is_made_to_follow_its_schema(answered):
    call = '{"name": "weather", "arguments": {"city": "Rome"}}'
    _status, body, engine = answered(call, tools=TOOLS, tool_choice="required")
    assert calls_of(body["choices"][0]["message"]) == [("weather", {"city": "Rome"})]
    assert [one["properties"]["name"]["const"] for one in engine.schema["anyOf"]] == ["weather", "time"]
    named = {"type": "function", "function": {"name": "weather"}}
    _status, body, engine = answered(call, tools=TOOLS, tool_choice=named)
    assert (engine.seen[2], engine.schema["properties"]["arguments"]) == (True, WEATHER)
    _status, body, engine = answered(call, tools=TOOLS, tool_choice=named, max_tokens=9)
    assert (body["choices"][0]["finish_reason"], body["choices"][0]["message"]["content"]) == ("length", call[:9])
    _status, body, engine = answered(PARIS, tools=TOOLS, tool_choice="none")
    assert (body["choices"][0]["message"]["content"], engine.seen[1:]) == (PARIS, [(), False])


def test_references_of_a_schema_lead_to_the_same_place_in_that_of_a_call(answered):
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "default": {"$ref": "#"}}}
    schema = {"$defs": {"node": node}, "$ref": "#/$defs/node", "enum": [{"$ref": "#/x"}]}
    one = {"type": "function", "function": {"name": "f", "parameters": schema}}
    _status, _body, engine = answered("{}", tools=[one], tool_choice="required")
    inner = engine.schema["properties"]["arguments"]
    assert (inner["$ref"], inner["enum"]) == ("#/properties/arguments/$defs/node", [{"$ref": "#/x"}])
    assert inner["$defs"]["node"]["properties"]["default"] == {"$ref": "#/properties/arguments"}
    _status, _body, engine = answered("{}", tools=[*TOOLS, one], tool_choice="required")
    inner = engine.schema["anyOf"][2]["properties"]["arguments"]
    assert inner["$ref"] == "#/anyOf/2/properties/arguments/$defs/node"
    assert engine.seen[1][2]["function"]["parameters"] == schema, "the template has it as it was"


def test_calls_and_results_among_the_messages_reach_the_template(answered):
    call = {"id": "c1", "type": "function", "function": {"name": "time", "arguments": '{"zone": "UTC"}'}}
    messages = [
        {"role": "user", "content": "hey"}, {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
    ]  # fmt: skip
    _status, _body, engine = answered("Noon.", tools=TOOLS, messages=messages)
    _user, called, result = engine.seen[0]
    assert called["tool_calls"][0]["function"]["arguments"] == {"zone": "UTC"}, "templates write JSON themselves"
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "12:00"}
    call["function"]["arguments"] = "{"
    status, body, _engine = answered("Noon.", tools=TOOLS, messages=messages)
    assert (status, body["error"]["param"]) == (400, "messages[1].tool_calls[0]")


def test_the_form_of_the_answer_is_guaranteed_or_refused(answered):
    described = {"type": "json_schema", "json_schema": {"name": "w", "schema": WEATHER, "strict": True}}
    assert answered("{}", response_format=described)[2].schema == WEATHER
    assert answered("{}", response_format={"type": "json_object"})[2].schema == {"type": "object"}
    with_schema = {"type": "json_object", "schema": WEATHER}  # as llama.cpp's server and others have it
    assert answered("{}", response_format=with_schema)[2].schema == WEATHER
    assert answered("{}", response_format={"type": "text"})[2].schema is None
    nonsense = {"type": "json_schema", "json_schema": {"name": "w", "schema": {"type": "nonsense"}}}
    large = {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 200_000]}}}
    for wrong in (
        nonsense,
        large,
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": 1},
        {"type": "json_object", "schema": 1},
        7,
    ):
        status, body, _engine = answered("{}", response_format=wrong)
        assert (status, body["error"]["param"]) == (400, "response_format"), wrong
    status, body, _engine = answered("stuck", response_format=described)
    assert (status, "cannot be followed further" in body["error"]["message"]) == (400, True)


def test_strict_arguments_follow_their_schema_also_where_the_model_decides(answered):
    strict = {"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}
    loose = {"type": "function", "function": {"name": "time", "parameters": WEATHER, "strict": False}}
    status, body, engine = answered(PARIS, tools=[strict, loose])
    assert (status, body["choices"][0]["finish_reason"], engine.schema) == (200, "tool_calls", None)
    assert engine.called == [("weather", WEATHER), ("time", {"type": "object"})]
    assert engine.seen[1][0] == TOOLS[0], "the template does not have it"
    assert answered(PARIS, tools=TOOLS)[2].called is None
    assert answered("hey", tools=[strict], tool_choice="none")[2].called is None
    required = answered("{}", tools=[strict], tool_choice="required")[2]
    assert (required.called, required.schema is None) == (None, False)
    status, body, _engine = answered(PARIS, able=False, tools=[strict])
    assert (status, "llguidance" in body["error"]["message"]) == (400, True)


WRONG_TOOLS = (
    ({"tools": [{"type": "function", "function": {"name": "a", "strict": 1}}]}, "tools"),
    ({"tools": 7}, "tools"), ({"tools": [{"type": "function"}]}, "tools"), ({"tools": TOOLS + TOOLS}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"), ({"tools": TOOLS * 65}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"), ({"tools": TOOLS, "tool_choice": "some"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
    ({"tools": TOOLS, "parallel_tool_calls": 1}, "parallel_tool_calls"),
    ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "response_format"),
)  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), WRONG_TOOLS)
def test_tools_that_are_wrong_are_refused_by_their_field(answered, fields, param):
    status, body, _engine = answered("hey", **fields)
    assert (status, body["error"]["param"]) == (400, param)


def test_what_the_model_cannot_do_is_refused_by_its_field(answered):
    for fields, param in (({"tools": TOOLS}, "tools"), ({"tools": TOOLS, "tool_choice": "none"}, "tools")):
        status, body, _engine = answered("hey", form="", **fields)
        assert (status, body["error"]["param"], body["error"]["code"]) == (400, param, "unsupported_parameter")
    for fields in ({"tools": TOOLS, "tool_choice": "required"}, {"response_format": {"type": "json_object"}}):
        status, body, _engine = answered("hey", able=False, **fields)
        assert (status, "llguidance" in body["error"]["message"]) == (400, True)


def test_its_description_has_tools_where_the_model_has_them(serving):
    document, engine = serving("chat_pages").document, Writer("")
    application = serving("chat").Chat(engine, "lm")
    require_valid(document(application, ""))

    def fields() -> set:
        body = document(application, "")["paths"][CHAT]["post"]["requestBody"]
        return {*body["content"]["application/json"]["schema"]["properties"]} & {"tools", "response_format"}

    assert fields() == {"tools", "response_format"}
    engine.tools, engine.constrains = "", False
    assert fields() == set()


def test_a_chat_template_is_bounded_and_what_it_raises_is_a_refusal(serving):
    engine = serving("chat_engine")

    def endless() -> str:
        while True:
            pass

    with pytest.raises(engine.WrongPrompt, match="has not ended within"):
        engine.rendered(endless, 0.05)
    assert engine.rendered(lambda: "text", 0.05) == "text"

    def deep() -> str:
        return deep()

    for wrong in (lambda: 1 // 0, lambda: [][1], lambda: {}["a"], lambda: "".nothing, deep):
        with pytest.raises(engine.WrongPrompt, match="does not take them"):
            engine.rendered(wrong)


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("{{ 9**(9**9) }}", None), ("{{ n ** (n ** n) }}", None), ("{{ 'a' * 10000000000 }}", None),
        ("{% set x = namespace(n=3) %}{% for i in range(60) %}{% set x.n = x.n * x.n %}{% endfor %}", None),
        ("{{ [1] * n * 1000000000 }}", None),
        ("{{ 2 ** 10 }} {{ '-' * 3 }} {{ 2.5 * 2 }} {{ 2 ** -1 }}", "1024 --- 5.0 0.5"),
    ],
)  # fmt: skip
def test_no_operator_of_a_chat_template_takes_long(serving, template, made):
    from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

    engine = serving("chat_engine")
    before = SandboxedEnvironment.default_binop_table, SandboxedEnvironment.intercepted_binops
    try:
        SandboxedEnvironment.default_binop_table = dict(before[0])
        engine.bound_operators()
        render = lambda: ImmutableSandboxedEnvironment().from_string(template).render(n=9)  # noqa: E731
        if made is None:
            with pytest.raises(engine.WrongPrompt, match="too l"):
                engine.rendered(render)
        else:
            assert engine.rendered(render) == made
    finally:
        SandboxedEnvironment.default_binop_table, SandboxedEnvironment.intercepted_binops = before


def test_the_form_of_calls_is_known_by_the_chat_template(serving):
    form_of = serving("tool_calls").form_of
    assert form_of("{% if tools %}<tool_call>{{ x }}</tool_call>{% endif %}") == "hermes"
    assert form_of('{% if tools %}{"parameters"}<|python_tag|>') == "llama"
    for template in ("{{ messages }}", "{{ tools }}", "{{ tools }}<tool_call><function=a>", "{{ tools }}[TOOL_CALLS]"):
        assert form_of(template) == ""
