"""Prompts: MLflow's clients keep them as registered models with a tag, and the text of a version in another one."""

from __future__ import annotations

import json
from collections.abc import Mapping

from jobs.code import diffs
from kernel import lenient

from .events import PROMPT, PROMPT_TEXT

TAGS = {PROMPT: "true"}


def is_prompt(tags: Mapping[str, str]) -> bool:
    return tags.get(PROMPT) == "true"


def text_of(tags: Mapping[str, str]) -> str:
    """Return the text of a version by its tags: of a chat each message with its role; "" for no prompt."""
    text = tags.get(PROMPT_TEXT, "")
    try:
        messages = json.loads(text) if text.startswith("[") else None
    except (ValueError, RecursionError):
        messages = None
    if not isinstance(messages, list) or not all(isinstance(one, dict) and "role" in one for one in messages):
        return text
    return "\n\n".join(f"{one['role']}:\n{lenient.text_of(one.get('content'))}" for one in messages)


def difference(one: Mapping[str, str], other: Mapping[str, str]) -> list[dict]:
    """Return the lines in which two versions differ; none for the same text, and for more than can be compared."""
    return diffs.differing(text_of(one).splitlines(), text_of(other).splitlines()) or []
