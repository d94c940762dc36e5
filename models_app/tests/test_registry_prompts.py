"""Prompts as MLflow's clients keep them: a list of their own, their text, and what differs between two versions."""

from __future__ import annotations

import json

import pytest

from mlp.tests.page_world import EVIL, visitor
from models_app.registry import prompts
from tracking.mlflow.tests.conftest import mlflow  # noqa: F401 (a fixture)

pytestmark = pytest.mark.django_db

TAG = {"key": "mlflow.prompt.is_prompt", "value": "true"}
CHAT = [{"role": "system", "content": f"You are {EVIL}"}, {"role": "user", "content": "总结 {{text}}"}]


@pytest.fixture
def summary(mlflow):  # noqa: F811
    mlflow.call("post", "registered-models/create", name="summary", tags=[TAG])
    for text in ("Summarise\n{{text}}", "Summarise briefly\n{{text}}", json.dumps(CHAT)):
        tags = [TAG, {"key": "mlflow.prompt.text", "value": text}]
        mlflow.call("post", "model-versions/create", name="summary", source="dummy-source", tags=tags)
    mlflow.call("post", "registered-models/alias", name="summary", alias="production", version="2")
    mlflow.call("post", "registered-models/create", name="churn")


def shown(client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode().split("<main", 1)[1]


def test_prompts_have_a_list_a_text_and_a_difference(summary, alice):
    client = visitor(alice)
    listed = {kind: shown(client, f"/registry?kind={kind}") for kind in ("", "models", "prompts", "x")}
    assert {kind for kind, page in listed.items() if "/registry/summary" in page} == {"", "prompts", "x"}
    assert {kind for kind, page in listed.items() if "/registry/churn" in page} == {"", "models", "x"}
    assert "@production" in listed["prompts"]
    page = shown(client, "/registry/summary")
    assert EVIL not in page
    assert "总结 {{text}}" in page
    assert "Summarise briefly\n{{text}}" in page
    compared = shown(client, "/registry/summary/compare?version=1&version=2")
    assert '<div class="line old">' in compared
    assert "+Summarise briefly" in compared
    assert 'id="prompt-title"' not in shown(client, "/registry/summary/compare?version=1&version=2&version=3")
    assert EVIL not in shown(client, "/registry/summary/compare?version=2&version=3")


def test_a_text_that_is_no_chat_stays_as_it_is():
    for text in ("", "[not json", "[1]", '["a"]', '[{"content": "x"}]', "plain"):
        assert prompts.text_of({"mlflow.prompt.text": text}) == text
    assert prompts.text_of({"mlflow.prompt.text": '[{"role": "user", "content": [1]}]'}) == "user:\n[1]"
    assert prompts.difference({}, {}) == []
