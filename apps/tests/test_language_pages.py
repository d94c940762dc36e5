"""The page of a language model's application: a form for a message, its answer, and code to copy."""

from __future__ import annotations

import pytest

from apps import playground
from mlp.tests.page_world import EVIL, markup, visible_text, visitor
from models_app.models import Model

from .test_language_gateway import spoken

__all__ = ["spoken"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def address(alice, spoken):
    """Return the address of the page, whose model has a template for messages."""
    speaks(spoken, "messages")
    return f"/apps/{spoken.name}"


@pytest.fixture
def alice_client(alice):
    return visitor(alice)


def speaks(app, takes: str, gives: str = "text") -> None:
    spec = {"name": takes, "datatype": "BYTES", "shape": [-1]}
    signature = {"inputs": [spec], "outputs": [{**spec, "name": gives}]}
    Model.objects.filter(pk=app.model_id).update(format="transformers", signature=signature)
    type(app).objects.filter(pk=app.pk).update(served_as="lm")


def test_a_message_is_answered(alice_client, address):
    shown = markup(alice_client.get(address)).values
    assert (shown["temperature"], shown["max_tokens"]) == ("0.7", "128")
    sent = {"system": "be kind", "input": "hello", "temperature": "0", "max_tokens": "3", "stop": ""}
    response = alice_client.post(address, sent)
    assert "HEL" in visible_text(response).partition("after ")[2]
    values = markup(response).values
    assert {name: values[name] for name in ("temperature", "max_tokens")} == {"temperature": "0", "max_tokens": "3"}
    assert "hello" in response.content.decode()
    stopped = alice_client.post(address, {"input": "hello", "stop": "ll"})
    assert "he" in visible_text(stopped).partition("after ")[2]


def test_without_a_template_the_text_is_continued(alice_client, spoken):
    speaks(spoken, "prompt")
    address = f"/apps/{spoken.name}"
    words = visible_text(alice_client.get(address))
    assert ("Text to continue" in words, "System prompt" in words) == (True, False)
    assert "client.completions.create" in words
    assert "hey" in visible_text(alice_client.post(address, {"input": "hey"})).partition("after ")[2]


def test_an_embedding_model_has_a_form_for_a_text(alice_client, spoken):
    speaks(spoken, "input", "embedding")
    page = alice_client.get(f"/apps/{spoken.name}")
    words = visible_text(page)
    assert ("client.embeddings.create" in words, "Temperature" in words) == (True, False)
    assert "data-streams" not in page.content.decode()
    answer = visible_text(alice_client.post(f"/apps/{spoken.name}", {"input": "hey"}))
    assert "there is no /v1/embeddings here" in answer, "the request goes there; the scripted model has none"


def test_the_vector_of_an_embedding_is_shown():
    assert playground.said(b'{"data": [{"embedding": [0.5, 1.0]}]}') == ("[0.5, 1.0]", ())


def test_refusals_are_shown(alice_client, address, spoken):
    assert "must not be empty" in visible_text(alice_client.post(address, {"input": ""}))
    assert "temperature: must be a number" in visible_text(
        alice_client.post(address, {"input": "a", "temperature": "warm"})
    )
    assert "temperature: must be a number" in visible_text(
        alice_client.post(address, {"input": "a", "temperature": "nan"})
    )
    long = visible_text(alice_client.post(address, {"input": "x" * 300}))
    assert "the context of this model has 200 tokens" in long
    failed = visible_text(alice_client.post(address, {"input": "fail"}))
    assert "the model failed: RuntimeError: out of memory" in failed
    strange = alice_client.post(address, {"input": EVIL, "system": EVIL, "stop": EVIL})
    assert markup(strange).inline == []


def test_code_to_copy_names_the_address_and_no_token(alice_client, address, spoken):
    words = visible_text(alice_client.get(address))
    assert f"/alice/{spoken.name}/v1/chat/completions" in words
    assert f'/alice/{spoken.name}/v1", api_key=os.environ["MLP_KEY"]' in words
    assert "/predict" not in words
