"""What is read of a language model's application: models, health, metadata, and its description in OpenAPI 3.1."""

from __future__ import annotations

import os

from openapi import KEY_TEXT

EVENTS = b"text/event-stream"
CHAT, TEXT, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
PUBLIC = "MLP_APP_PUBLIC"  # in the environment: no key is needed
STRING, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer", "minimum": 1}
ERRORS = {
    "400": "The request is not one that the model takes; the error names the field.",
    "401": "A key of the application, or its owner's token, is needed.",
    "404": "There is no such address or model.",
    "413": "The body is too large.",
    "429": "Too many requests; Retry-After says when to try again.",
    "500": "The model failed.",
    "503": "The application is not up; Retry-After says when to try again.",
    "504": "The model took too long.",
}


def description(engine) -> str:
    """Return in words what the application answers."""
    if engine.embeds:
        return f"an embedding model answers {EMBEDDINGS}, and has no completions or other endpoints"
    chat = f"{CHAT} and " if engine.chats else ""
    return f"a language model answers {chat}{TEXT}, and has no embeddings or other endpoints"


def posts(engine) -> list[str]:
    """Return the addresses at which something is computed."""
    return [EMBEDDINGS] if engine.embeds else [CHAT, TEXT]


def pages(application, prefix: str, also: tuple[str, ...] = ()) -> dict[str, object]:
    """Return what is answered at the addresses that are read. `prefix` is the application's own path at the gateway,
    `also` are further names of the model.
    """
    engine, name = application.engine, application.name
    names = tuple(dict.fromkeys((name, *application.also, *also)))
    models = [_model(one, application) for one in names]
    metadata = {"name": name, "versions": ["1"], "platform": engine.format, "inputs": [], "outputs": []}
    ready = {"live": True, "ready": True}
    about = {"model": {**metadata, "context": engine.context, "chat": engine.chats}, "paths": _paths(engine)}
    of_models = {f"/v1/models/{model['id']}": model for model in models}
    of_v2 = {f"/v2/models/{one}": metadata for one in names}
    return {
        "": about, "/schema": about, "/ping": b"\n", "/health": b"\n",
        "/v1/models": {"object": "list", "data": models}, **of_models,
        "/v2": {"name": "mlp-serving", "version": "1", "extensions": []},
        "/v2/health/live": ready, "/v2/health/ready": ready, **of_v2,
        **{f"{path}/ready": ready for path in of_v2},
        "/openapi.json": document(application, prefix),
    }  # fmt: skip


def _model(name: str, application) -> dict:
    about = {"id": name, "object": "model", "created": application.began, "owned_by": "mlp"}
    return {**about, "max_model_len": application.engine.context}


def _paths(engine) -> list[str]:
    return ["/v1/models", *(path for path in posts(engine) if path != CHAT or engine.chats), "/openapi.json"]


def document(application, prefix: str) -> dict:
    """Return the description of the application for callers of the gateway."""
    engine, callers = application.engine, [{"bearer": []}, {"key": []}]
    paths = {
        "/v1/models": {"get": _operation("listModels", "The models: this one, under each of its names", None)},
    }
    if engine.embeds:
        paths[EMBEDDINGS] = {"post": _operation("createEmbedding", "Make vectors of texts", _texts())}
    else:
        paths[TEXT] = {"post": _operation("createCompletion", "Continue a text", _body("prompt", STRING))}
    if engine.chats:
        messages = {"type": "array", "minItems": 1, "items": _message(bool(engine.tools))}
        body = _body("messages", messages)
        body["properties"] |= _of_tools() if engine.tools else {}
        body["properties"] |= {"response_format": _form()} if engine.constrains else {}
        paths["/v1/chat/completions"] = {"post": _operation("createChatCompletion", "Answer messages", body)}
    error = {"type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": application.name, "version": "1", "description": f"A language model ({engine.format})."},
        "servers": [{"url": prefix or "/"}],
        "security": [{}, *callers] if os.environ.get(PUBLIC) else callers,
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": KEY_TEXT},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": KEY_TEXT},
            },
            "responses": {
                status: {"description": text, "content": {"application/json": {"schema": error}}}
                for status, text in ERRORS.items()
            },
        },
    }


def _texts() -> dict:
    text = {**STRING, "minLength": 1}
    texts = {"oneOf": [text, {"type": "array", "items": text, "minItems": 1, "maxItems": 2048}]}
    kinds = {"enum": ["float", "base64"]}
    fields = {"input": texts, "model": STRING, "encoding_format": kinds, "dimensions": WHOLE, "user": STRING}
    return {"type": "object", "required": ["input"], "properties": fields}


def _message(tools: bool) -> dict:
    role = {"enum": ["system", "developer", "user", "assistant", *["tool"] * tools]}
    return {"type": "object", "required": ["role", "content"], "properties": {"role": role, "content": STRING}}


def _of_tools() -> dict:
    """Return the fields by which a model gets tools."""
    function = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": STRING, "description": STRING, "parameters": {"type": "object"}},
    }
    tool = {"type": "object", "required": ["type", "function"], "properties": {"type": {"const": "function"}}}
    tool["properties"] |= {"function": function}
    named = {"type": "object", "required": ["type", "function"]}
    choice = {"oneOf": [{"enum": ["none", "auto", "required"]}, named]}
    tools = {"type": "array", "items": tool, "maxItems": 128}
    return {"tools": tools, "tool_choice": choice, "parallel_tool_calls": {"type": "boolean"}}


def _form() -> dict:
    kinds = {"enum": ["text", "json_object", "json_schema"]}
    described = {"type": "object", "required": ["schema"], "properties": {"schema": {"type": "object"}}}
    return {"type": "object", "required": ["type"], "properties": {"type": kinds, "json_schema": described}}


def _body(name: str, schema: dict) -> dict:
    limits = {"max_tokens": WHOLE} | ({"max_completion_tokens": WHOLE} if name == "messages" else {})
    chosen = {"temperature": {**NUMBER, "minimum": 0, "maximum": 2}, "top_p": {**NUMBER, "minimum": 0, "maximum": 1}}
    stop = {"oneOf": [STRING, {"type": "array", "items": STRING, "maxItems": 4}]}
    usage = {"type": "object", "properties": {"include_usage": {"type": "boolean"}}}
    fields = {"seed": {"type": "integer"}, "stop": stop, "stream": {"type": "boolean"}, "stream_options": usage}
    return {
        "type": "object",
        "required": [name],
        "properties": {name: schema, "model": STRING, **limits, **chosen, **fields},
    }


def _operation(identity: str, summary: str, body: dict | None) -> dict:
    taken = {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}} if body else {}
    content = {"application/json": {"schema": {"type": "object"}}}
    if body:
        content[EVENTS.decode()] = {}  # a schema would be that of each event, or of the whole text: tools differ
    failures = ERRORS if body else ("401", "404", "429", "503")
    responses = {status: {"$ref": f"#/components/responses/{status}"} for status in failures}
    good = {"description": summary, "content": content}
    return {"operationId": identity, "summary": summary, **taken, "responses": {"200": good, **responses}}
