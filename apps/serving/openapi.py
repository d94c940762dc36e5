"""The OpenAPI 3.1 description of an application, made from its model's signature; no Django.

Inputs are described as strictly as the model declares them. Of outputs, which the model's own code may shape as it
likes, only what is certain is said.
"""

from __future__ import annotations

import numpy as np
from protocol import plain
from values import DATATYPES

MAX_EXAMPLE = 4096  # numbers in an example
NOT_FINITE = ["NaN", "Infinity", "-Infinity"]
JSON, BYTES = "application/json", "application/octet-stream"
KEY_TEXT = "A key of this application, or a token of its owner."
ERRORS = {
    "400": "The request is not one that the model takes; the message says why.",
    "401": "A key of the application, or its owner's token, is needed.",
    "404": "There is no application at this address.",
    "413": "The body is too large.",
    "415": "The content type or encoding is not taken.",
    "429": "Too many requests; Retry-After says when to try again.",
    "500": "The model failed.",
    "503": "The application is not up, or too much is sent at once; Retry-After says when to try again.",
    "504": "The model took too long.",
}
OF_READING = ("401", "404", "429", "503")
ID = {"type": "string", "description": "returned with the answer"}
PARAMETERS = {"type": "object"}


def document(name: str, model, *, also: tuple[str, ...] = (), public: bool = False, prefix: str = "") -> dict:
    """Return the description of the application that serves `model` under `name` in the addresses of v2; `also` are
    other names of it, `prefix` is the application's own path at the gateway.
    """
    base = f"/v2/models/{name}"
    names = f" {', '.join(also)} may be written for {name}." if also else ""
    paths = {
        "/predict": {"post": _predict(model)},
        f"{base}/infer": {"post": _infer(model, names)},
        "/invocations": {"post": _invocations()},
        base: {"get": _reading("getModel", "The model's inputs and outputs", _object("name", "inputs", "outputs"))},
        "/v2/health/ready": {"get": _reading("getReady", "Whether the model is ready", _object("ready"))},
        "/v2": {"get": _reading("getServer", "The server and its extensions", _object("name", "extensions"))},
        "/schema": {"get": _reading("getSchema", "The inputs in words, with an example", _object("model", "predict"))},
        "/openapi.json": {"get": _reading("getOpenapi", "This description", _object("openapi", "paths"))},
    }
    callers = [{"bearer": []}, {"key": []}]
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": "1", "description": f"A model of the format {model.format}."},
        "servers": [{"url": prefix or "/"}],
        "security": [{}, *callers] if public else callers,
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": KEY_TEXT},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": KEY_TEXT},
            },
            "schemas": {"Error": {**_object("error"), "properties": {"error": {"type": "string"}}}},
            "responses": {status: _failure(text) for status, text in ERRORS.items()},
        },
    }


# --- calls -----------------------------------------------------------------------------------------------------------
def _predict(model) -> dict:
    inputs = {one["name"]: nested(one["shape"], given(one["datatype"])) for one in model.inputs}
    schema: dict = {"type": "object"}
    if inputs:
        required = [name for name in inputs if name not in model.optional]
        schema |= {"properties": inputs, "required": required, "additionalProperties": False}
    if len(inputs) == 1 and next(iter(inputs.values())).get("type") == "array":
        schema = {"anyOf": [schema, *inputs.values()]}
    body = {"schema": schema}
    example = model.example()
    if example and sum(np.asarray(one["data"]).size for one in example) <= MAX_EXAMPLE:
        body["example"] = {one["name"]: plain(one) for one in example}
    content = {JSON: body, "text/csv": {"schema": {"type": "string"}}}
    rows = all(one["shape"][:1] == [-1] for one in model.inputs) and model.inputs
    batch = " The first dimension is that of the batch: one request may have many rows." if rows else ""
    answer = {"type": "object"}
    if model.format != "predictor":
        answer["properties"] = {one["name"]: _output(one) for one in model.outputs}
    return {
        "operationId": "predict",
        "summary": "Predict from plain JSON or a file",
        "description": f"The inputs by their names, or those of the only input alone; /schema lists the files that "
        f"are taken, too.{batch}",
        "requestBody": {"required": True, "content": content},
        "responses": _answers("the outputs by their names", {JSON: {"schema": answer}}),
    }


def _infer(model, names: str) -> dict:
    listed = [_tensor(one, only=len(model.inputs) == 1) for one in model.inputs]
    tensors: dict = {"type": "array", "minItems": 1}
    if listed:
        tensors |= {"items": {"anyOf": listed}, "maxItems": len(listed)}
    request = {
        "type": "object",
        "required": ["inputs"],
        "properties": {"id": ID, "parameters": PARAMETERS, "inputs": tensors, "outputs": {"type": "array"}},
    }
    answer = {
        "type": "object",
        "required": ["model_name", "outputs"],
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": ID,
            "outputs": {"type": "array", "items": _object("name", "datatype", "shape")},
        },
    }
    return {
        "operationId": "infer",
        "summary": "Predict by the Open Inference Protocol v2",
        "description": "With Inference-Header-Content-Length, binary tensors follow the JSON." + names,
        "requestBody": {"required": True, "content": {JSON: {"schema": request}}},
        "responses": _answers("the output tensors", {JSON: {"schema": answer}, BYTES: {}}),
    }


def _invocations() -> dict:
    forms = ("dataframe_split", "dataframe_records", "instances", "inputs")
    schema = {"type": "object", "anyOf": [{"required": [form]} for form in forms]}
    return {
        "operationId": "invoke",
        "summary": "Predict by MLflow's scoring protocol",
        "requestBody": {"required": True, "content": {JSON: {"schema": schema}}},
        "responses": _answers("the predictions", {JSON: {"schema": _object("predictions")}}),
    }


def _reading(operation: str, summary: str, schema: dict) -> dict:
    responses = _answers(summary, {JSON: {"schema": schema}}, OF_READING)
    return {"operationId": operation, "summary": summary, "responses": responses}


def _answers(text: str, content: dict, failures: tuple[str, ...] = tuple(ERRORS)) -> dict:
    failed = {status: {"$ref": f"#/components/responses/{status}"} for status in failures}
    return {"200": {"description": text, "content": content}, **failed}


def _failure(text: str) -> dict:
    answer: dict = {"description": text, "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    if "Retry-After" in text:
        answer["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "seconds"}}
    return answer


# --- values ----------------------------------------------------------------------------------------------------------
def given(kind: str) -> dict:
    """Return the schema of one value that is sent."""
    if kind.startswith("FP") and kind in DATATYPES:
        return {"anyOf": [{**_number(kind), "type": ["number", "null"]}, {"enum": NOT_FINITE}]}
    return _number(kind)


def _number(kind: str) -> dict:
    if kind not in DATATYPES:  # of a predictor.py, which may take what it likes
        return {}
    if kind in ("BOOL", "BYTES"):
        return {"type": {"BOOL": "boolean", "BYTES": "string"}[kind]}
    if kind.startswith("FP"):
        most = float(np.finfo(DATATYPES[kind]).max)
        return {"type": "number", "minimum": -most, "maximum": most}
    limits = np.iinfo(DATATYPES[kind])
    return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}


def nested(shape: list[int], value: dict) -> dict:
    """Return the schema of nested lists of that shape; -1 is any length."""
    for side in reversed(shape):
        value = {"type": "array", "items": value, **({"minItems": side, "maxItems": side} if side >= 0 else {})}
    return value


def _output(one: dict) -> dict:
    """Return what is certain of an output: how deep its lists are, and the kind of its values."""
    kind = one["datatype"]
    known = kind in DATATYPES and kind != "BYTES"  # bytes that are no text are objects
    value = {"type": _number(kind)["type"]} if known else {}
    return nested([-1] * len(one["shape"]), value)


def _tensor(one: dict, *, only: bool) -> dict:
    side = {"type": "integer", "minimum": 0}
    properties = {
        "name": {"type": "string"} if only else {"const": one["name"]},
        "datatype": {"const": one["datatype"]},
        "shape": {"type": "array", "items": side, "minItems": len(one["shape"]), "maxItems": len(one["shape"])},
        "parameters": PARAMETERS,
        "data": {"type": "array", "description": "flat or nested, in the order of rows"},
    }
    return {"type": "object", "required": ["name", "datatype", "shape"], "properties": properties}


def _object(*required: str) -> dict:
    return {"type": "object", "required": list(required)}
