"""What computes a language model's answers, as the server (chat.py) sees it: the interface that an engine implements.

An engine gets token ids and emits pieces of text. What the protocol of the API means by stop strings, limits, usage
and streams is the server's, so that each engine means the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

STOP, LENGTH = "stop", "length"  # why an answer has ended
LEAST_TEMPERATURE = 0.01  # below, logits would overflow


# What a chat template raises, beside jinja2's errors, for messages that it is not made for.
TEMPLATE_PROBLEMS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)
TEMPLATE_S = 10
MOST_BITS, MOST_ITEMS = 1 << 16, 1 << 20  # of a number, and of a text or a list, that an operator makes in a template


class WrongPrompt(ValueError):
    """The prompt is not one that the model takes; the message says why."""


class Endless(BaseException):
    """Raised in a chat template that takes too long; no Exception, so that nothing on the way takes it for its own."""


def bound_operators() -> None:
    """Let `**` and `*` in chat templates refuse what would take very long: one operation cannot be interrupted, and
    with constants only it is computed as the template is compiled. For all sandboxes of this process, which are of
    templates only, since the libraries make them themselves.
    """
    from jinja2.sandbox import SandboxedEnvironment

    SandboxedEnvironment.default_binop_table |= {"**": _power, "*": _product}
    SandboxedEnvironment.intercepted_binops = frozenset(("**", "*"))


def _power(base, exponent):
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > MOST_BITS:
        raise OverflowError("a number is too large")
    return base**exponent


def _product(one, other):
    bits = [value.bit_length() for value in (one, other) if isinstance(value, int)]
    sizes = [len(value) for value in (one, other) if isinstance(value, str | bytes | list | tuple)]
    if len(bits) == 2 and sum(bits) > MOST_BITS:
        raise OverflowError("a number is too large")
    if bits and sizes and sizes[0] * (one if isinstance(one, int) else other) > MOST_ITEMS:
        raise OverflowError("a text or a list is too long")
    return one * other


def rendered(render: Callable[[], str], seconds: float = TEMPLATE_S) -> str:
    """Return what a chat template makes of messages, by `render`. Raises WrongPrompt where it refuses them, or takes
    longer than so many seconds: it is the word of the model's author, and the requests of others wait for it.
    """
    import jinja2

    thread, lock, over = threading.get_ident(), threading.Lock(), threading.Event()

    def interrupt() -> None:
        with lock:
            if not over.is_set():
                _raise_in(thread, ctypes.py_object(Endless))

    def end() -> None:
        with lock:
            over.set()
            _raise_in(thread, None)
        timer.cancel()

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    try:
        with contextlib.suppress(RuntimeError):  # the model has all threads that the run may have
            timer.start()
        try:
            return render()
        finally:
            end()
    except Endless:
        end()
        raise WrongPrompt(f"the chat template of the model has not ended within {seconds} s") from None
    except (jinja2.TemplateError, *TEMPLATE_PROBLEMS) as problem:
        raise WrongPrompt(f"the chat template of the model does not take them ({str(problem)[:300]})") from None


def _raise_in(thread: int, kind) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind)


@dataclass(frozen=True)
class Options:
    """How to continue a prompt: at most `most` tokens; temperature 0 takes the most probable token each time."""

    most: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    constraint: object | None = None  # what Engine.constraint has returned


@dataclass(frozen=True)
class Piece:
    """A piece of an answer: text, which may be empty, the number of its tokens, and at its end STOP or LENGTH."""

    text: str
    tokens: int = 1
    finish: str = ""


class Engine(Protocol):
    """Computes answers. `context`: tokens of prompt and answer together; `parallel`: answers that may be computed at
    the same time; `chats`: the model has a template for messages; `tools`: the form in which it calls tools
    (tool_calls.py), empty where it calls none; `constrains`: answers can be made to follow a JSON schema. One that has
    processes of its own has a method `close`, which ends them.
    """

    format: str
    context: int
    parallel: int
    chats: bool
    tools: str
    constrains: bool
    embeds = False

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt. Raises WrongPrompt."""

    def encode_messages(self, messages: list[dict], tools: tuple[dict, ...] = (), calling: bool = False) -> list[int]:
        """Return the tokens of messages by the model's template, with the tools that it may call; `calling`: its answer
        is the JSON of a call. Raises WrongPrompt.
        """

    def encode_tokens(self, tokens: list[int]) -> list[int]:
        """Return tokens that a caller sent. Raises WrongPrompt where the model does not have one."""

    def calling(self, functions: list[tuple[str, dict]]) -> object:
        """Return what makes the arguments of calls in one answer, which may also be a text, follow the functions' JSON
        schemas. Raises WrongPrompt for those that cannot be followed.
        """

    def constraint(self, schema: dict) -> object:
        """Return what makes one answer follow a JSON schema. Raises WrongPrompt for one that cannot be followed."""

    def generate(
        self, tokens: list[int], options: Options, emit: Callable[[Piece], None], cancelled: threading.Event
    ) -> None:
        """Continue the prompt: emit its pieces, the last with `finish`. Called in a thread; ends soon after `cancelled`
        is set.
        """


class Embedder(Protocol):
    """Computes embeddings. `context`: tokens of a text; `dimensions`: numbers in a vector."""

    format: str
    context: int
    parallel: int
    dimensions: int
    embeds = True
    chats = False

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text. Raises WrongPrompt."""

    def encode_tokens(self, tokens: list[int]) -> list[int]:
        """Return tokens that a caller sent. Raises WrongPrompt where the model does not have one."""

    def may_have(self, dimensions: int) -> bool:
        """Return whether vectors may be shortened to so many numbers."""

    def embed(self, texts: list[list[int]], cancelled: threading.Event):
        """Return a numpy array with a vector for each list of tokens. Called in a thread; ends soon after `cancelled`
        is set.
        """
