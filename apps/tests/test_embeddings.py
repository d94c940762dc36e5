"""Embeddings in OpenAI's protocol; models by transformers are in test_language_frameworks.py."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from .language_process import Counter, ask, serving
from .test_openapi import require_valid

__all__ = ["serving"]

PATH = "/v1/embeddings"


@pytest.fixture
def application(serving):
    return serving("chat").Chat(Counter(), "lm", ("older",))


def vectors_of(application, given: object, **fields) -> list:
    status, [body] = ask(application, PATH, {"input": given, **fields})
    assert (status, body["object"], body["model"]) == (200, "list", "lm"), body
    assert [entry["index"] for entry in body["data"]] == [*range(len(body["data"]))]
    return [entry["embedding"] for entry in body["data"]]


def test_texts_and_tokens_have_a_vector_each(application):
    assert vectors_of(application, "ab") == [[2, 97, 98, 0.5]]
    assert vectors_of(application, ["ab", "c"], model="older") == [[2, 97, 98, 0.5], [1, 99, 99, 0.5]]
    assert vectors_of(application, [7, 8, 9]) == [[3, 7, 9, 0.5]]
    assert vectors_of(application, [[7], [8, 9]], user="alice") == [[1, 7, 7, 0.5], [2, 8, 9, 0.5]]


def test_vectors_may_be_packed_and_shortened_where_the_model_allows_it(application):
    [packed] = vectors_of(application, "ab", encoding_format="base64")
    assert np.frombuffer(base64.b64decode(packed), "<f4").tolist() == [2, 97, 98, 0.5]
    [short] = vectors_of(application, "ab", dimensions=2)
    assert np.allclose(short, np.array([2, 97]) / np.hypot(2, 97))
    assert len(vectors_of(application, "ab", dimensions=4)[0]) == 4


WRONG = (
    ({}, "input"), ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": ["a", ""]}, "input"),
    ({"input": ["a", [1]]}, "input"), ({"input": [1, "a"]}, "input"), ({"input": [[]]}, "input"),
    ({"input": {}}, "input"), ({"input": [True]}, "input"), ({"input": ["a"] * 2049}, "input"),
    ({"input": "x" * 21}, "input"), ({"input": "a", "dimensions": 3}, "dimensions"),
    ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
    ({"input": "a", "task": "query"}, "task"), ({"input": "a", "model": "x"}, "model"),
)  # fmt: skip


@pytest.mark.parametrize(("content", "param"), WRONG)
def test_what_is_wrong_is_refused_by_its_field(application, content, param):
    status, [body] = ask(application, PATH, content)
    assert (status, body["error"]["param"]) == (404 if param == "model" else 400, param)


def test_bodies_are_bounded(application):
    status, [body] = ask(application, PATH, {"input": "x" * (9 << 20)})
    assert (status, body["error"]["code"]) == (413, "request_too_large")
    assert ask(application, PATH, {"input": "ab"}, X_App_Body="9")[0] == 413


def test_an_answer_has_so_many_numbers_at_most(application):
    application.engine.dimensions = 1 << 21
    status, [body] = ask(application, PATH, {"input": ["a", "b", "c"]})
    assert (status, body["error"]["param"], "at most 2 vectors" in body["error"]["message"]) == (400, "input", True)


def test_a_text_that_is_far_too_long_is_not_made_tokens_first(application):
    application.engine.encode = None
    status, [body] = ask(application, PATH, {"input": "x" * (20 * 256 + 1)})
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")


def test_it_counts_for_the_key_and_in_the_usage(application):
    status, [body] = ask(application, PATH, {"input": ["abc", "de"]}, X_App_Key="k1")
    assert (status, body["usage"]) == (200, {"prompt_tokens": 5, "total_tokens": 5})
    assert application.tokens.counts == {"k1": [5, 0]}


def test_an_embedding_model_has_no_completions_and_a_language_model_no_embeddings(application):
    status, [body] = ask(application, "/v1/chat/completions", {"messages": []})
    assert (status, body["error"]["code"]) == (404, "unknown_url")
    assert "an embedding model answers /v1/embeddings" in body["error"]["message"]


def test_its_description_is_valid(application, serving):
    document = serving("chat_pages").document(application, "")
    require_valid(document)
    assert set(document["paths"]) == {"/v1/models", PATH}


def test_vectors_that_are_no_numbers_are_a_failure(application):
    for number in (float("nan"), float("inf")):
        application.engine.embed = lambda texts, cancelled, number=number: np.array([[1, number]], np.float32)
        for kind in ("float", "base64"):
            status, [body] = ask(application, PATH, {"input": "a", "encoding_format": kind})
            assert (status, body["error"]["type"]) == (500, "server_error")
