"""Answers that are looked up once while a page asks the same for each of its rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

P, T = ParamSpec("P"), TypeVar("T")
_answers: ContextVar[dict[Hashable, tuple[bool, object]] | None] = ContextVar("remembered", default=None)


@contextmanager
def together() -> Iterator[None]:
    """Remember within the block what `memoized` functions return or raise. Nothing may be written there."""
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)


def memoized(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function that only reads be asked once for the same arguments within `together`."""

    @wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        answers = _answers.get()
        if answers is None:
            return function(*args, **kwargs)
        key = (function, args, tuple(sorted(kwargs.items())))
        if key not in answers:
            try:
                answers[key] = True, function(*args, **kwargs)
            except Exception as problem:  # raised below, as often as it is asked
                answers[key] = False, problem
        is_answer, answer = answers[key]
        if not is_answer:
            raise answer
        return answer

    return asked
