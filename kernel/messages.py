"""Messages: English sentences that keep their template and parameters, so that a page can translate them.

A Message is a `str`: REST, logs and comparisons see the English sentence. A page shows `translate(message)`. Refusals
carry one (kernel.errors), and ReasonField stores one. The first argument of Message(…), Refused(…) and Fault(…) is a
literal, which tools/translations.py extracts; `mlp/tests/test_messages.py` checks that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from django.conf import settings
from django.db import models
from django.db.models.lookups import Exact
from django.utils.text import capfirst
from django.utils.translation import get_supported_language_variant, gettext, override
from django.utils.translation.trans_real import parse_accept_lang_header

from . import sanitize

SEPARATOR = "\x1e"  # in a ReasonField's column: the sentence, this character, the template and parameters as JSON
MAX_FIELD = 200  # characters of a field that a refusal names
# Nouns after a number, in English: "1 line". Those of several words first.
ONE = {
    "steps have": "step has", "trials have": "trial has", "runs of your pipelines have": "run of your pipelines has",
    "sweeps that run or pause": "sweep that runs or pauses", "second factors are": "second factor is",
    "trials are": "trial is", "messages were": "message was", "bytes are": "byte is", "GPU hours are": "GPU hour is",
    "seconds that were": "second that was",
    "anomalies": "anomaly", "searches": "search", "processes and threads": "process or thread", "processes": "process",
    "second factors": "second factor",
    **{f"{noun}s": noun for noun in (
        "account", "attempt", "byte", "character", "comparison", "day", "element", "failure", "file", "folder",
        "hour", "input", "job", "key", "label", "line", "message", "minute", "model", "notification", "panel",
        "parameter", "pipeline", "point", "project", "recipient", "rule", "run", "schedule", "second", "share", "sign",
        "step", "string", "suppression", "sweep", "template", "token", "trial", "upload", "value", "version", "view",
        "webhook", "word", "workload")},
}  # fmt: skip
COUNTED = re.compile(rf"%\((\w+)\)s((?: (?!of |in |to |or |and |than )[A-Za-z]+){{0,2}}?) ({'|'.join(ONE)})\b")
BREAK = "\x1f"  # where a sentence ends, while a message is divided


class Message(str):
    """`template` with its `%(name)s` filled from `params`; a parameter is text, a number or another Message."""

    template: str
    params: dict[str, str | int | float]

    def __new__(cls, template: str, /, **params) -> Message:
        """Return the message. An exception or any other object as a parameter is taken by its own message or text."""
        if isinstance(template, Message) and not params:
            return template
        values = {name: _value(value) for name, value in params.items()}
        self = super().__new__(cls, filled(template, values) if values else template)
        self.template, self.params = str(template), values
        return self

    def translated(self) -> str:
        """Return the sentence in the active language; as it is where the catalogue has no such template."""
        template = gettext(self.template) if self.template else ""
        values = {name: translate(value) for name, value in self.params.items()}
        return filled(template, values) if values else template

    def mapped(self, change: Callable[[str], str]) -> Message:
        """Return the message with `change` applied to each text among its parameters."""
        if not self.params:
            return self
        values = {
            name: value.mapped(change) if isinstance(value, Message)
            else change(value) if isinstance(value, str) else value
            for name, value in self.params.items()
        }  # fmt: skip
        return Message(self.template, **values)

    def clipped(self, length: int) -> str:
        """Return the message with its longest text parameter cut so that it has at most `length` characters."""
        excess = len(self) - length
        if excess <= 0:
            return self
        texts = {name: value for name, value in self.params.items() if isinstance(value, str)}
        longest = max(texts, key=lambda name: len(texts[name]), default=None)
        if longest is None or len(texts[longest]) <= excess:
            return str(self)[:length]
        return Message(self.template, **{**self.params, longest: clip(texts[longest], len(texts[longest]) - excess)})

    def as_data(self) -> dict:
        """Return the message as a JSON value; `from_data` reads it."""
        params = {name: value.as_data() if isinstance(value, Message) else value for name, value in self.params.items()}
        return {"template": self.template, "params": params}

    def __reduce__(self):
        return from_data, (self.as_data(),)


def filled(template: str, values: Mapping[str, object]) -> str:
    """Return the template with the values in it; what an English one counts is singular where there is one of it."""

    def singular(match: re.Match) -> str:
        is_one = str(values.get(match[1])) == "1"
        return f"%({match[1]})s{match[2]} {ONE[match[3]]}" if is_one else match[0]

    return COUNTED.sub(singular, template) % values


def _value(value) -> str | int | float:
    if isinstance(value, Message | int | float):
        return value
    return message_of(value) if isinstance(value, Exception) else str(value)


def from_data(data: dict) -> Message:
    """Return the message that `as_data` described. Raises KeyError, TypeError or ValueError for anything else."""
    params = {
        name: from_data(value) if isinstance(value, dict) else value for name, value in dict(data["params"]).items()
    }
    return Message(str(data["template"]), **params)


def restored(data, default: str) -> str:
    """Return the message that `as_data` described; `default` for a value that is none."""
    try:
        return from_data(data)
    except (AttributeError, KeyError, TypeError, ValueError):
        return default


def message_of(problem: Exception) -> str:
    """Return an exception's Message where it carries one, else its text."""
    carried = getattr(problem, "msg", None) or (problem.args[0] if problem.args else None)
    return carried if isinstance(carried, Message) else str(problem)


def word(text: str) -> Message:
    """Return a word chosen at run time as a message: a state or a kind of object, which the catalogue has anyway."""
    return Message(str(text))


def under(field: str, problem: str) -> str:
    """Return `field: problem`, the form in which REST names a field; without a field the problem itself."""
    field = field[:MAX_FIELD]  # an unknown one may be of any length
    return Message("%(field)s: %(problem)s", field=field, problem=problem) if field else problem


def joined(messages: Iterable[str], separator: str = "; ") -> Message:
    """Return the messages as one."""
    params = {f"part{number}": message for number, message in enumerate(messages)}
    return Message(separator.join(f"%({name})s" for name in params), **params)


def with_lines(message: str, lines: Iterable[str]) -> str:
    """Return the message followed by lines of a log, which are never translated; itself where there are none."""
    log = "\n".join(lines)
    return Message("%(message)s\n%(log)s", message=message, log=log) if log else message


def clip(text: str, length: int) -> str:
    """Return the text with at most `length` characters; a Message stays one where a parameter can be shortened."""
    return text.clipped(length) if isinstance(text, Message) else text[:length]


def translate(text):
    """Return a Message in the active language; anything else is returned as it is."""
    return text.translated() if isinstance(text, Message) else text


def sentences(text: str) -> str:
    """Return a refusal in the active language as sentences, since it stands alone on a page: in REST it is the end of a
    line after a colon. It is divided at the semicolons of its own words; names and values stay as they are.
    """
    first, *others = _divided(text).split(BREAK)
    first = first if _begins_with_value(text) else capfirst(first)
    whole = ". ".join([first, *map(capfirst, others)])
    return whole + ("." if others and whole[-1:].isalnum() else "")


def _divided(text):
    """Return the text in the active language, with BREAK for each semicolon of the templates."""
    if not isinstance(text, Message):
        return text.replace(BREAK, " ") if isinstance(text, str) else text
    template = (gettext(text.template) if text.template else "").replace("; ", BREAK)
    values = {name: _divided(value) for name, value in text.params.items()}
    return filled(template, values) if values else template


def _begins_with_value(text: str) -> bool:
    """Return whether the first word is a name or another value: a capital would make another name of it."""
    match = re.match(r"%\((\w+)\)", gettext(text.template)) if isinstance(text, Message) and text.params else None
    value = text.params[match[1]] if match else None
    return _begins_with_value(value) if isinstance(value, Message) else match is not None


def for_caller(text: str, meta: Mapping[str, str]) -> str:
    """Return the message as the caller reads it: in the language that a page of ours names in its requests, else in
    English. `meta` are the request's headers with names as WSGI has them.
    """
    language = meta.get("HTTP_X_PAGE_LANGUAGE", "")
    if language not in dict(settings.LANGUAGES):
        return text
    with override(language):
        return translate(text)


def accepted_language(header: str) -> str:
    """Return the first of our languages that a value of Accept-Language asks for; English where it asks for none."""
    for language, _quality in parse_accept_lang_header(header):
        with suppress(LookupError):
            return get_supported_language_variant(language)
    return settings.LANGUAGE_CODE


def storable(text: str) -> str:
    """Return the text, message or not, with U+FFFD for each character that a database or a page cannot take."""
    return text.mapped(sanitize.text) if isinstance(text, Message) else sanitize.text(text)


def stored(text: str) -> str:
    """Return the text as ReasonField's column has it; `read_stored` reads it."""
    plain = text.replace(SEPARATOR, " ")
    return f"{plain}{SEPARATOR}{json.dumps(text.as_data(), ensure_ascii=False)}" if isinstance(text, Message) else plain


class ReasonField(models.TextField):
    """A text column for messages: the value read is a Message where one was stored, else plain text.

    The column has the English sentence first, so that `startswith` and `contains` find it as in any text column.
    """

    def from_db_value(self, value, expression, connection):
        return value if value is None else read_stored(value)

    def get_prep_value(self, value):
        text = super().get_prep_value(value)
        return stored(value) if isinstance(value, Message) else stored(text) if isinstance(text, str) else text

    def deconstruct(self):
        """Return TextField's own description: for migrations the column is one."""
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs


@ReasonField.register_lookup
class SentenceIs(Exact):
    """`filter(reason="…")` compares the English sentence, whether a message or plain text was stored."""

    def process_lhs(self, compiler, connection, lhs=None):
        column, params = super().process_lhs(compiler, connection, lhs)
        return f"split_part({column}, %s, 1)", [*params, SEPARATOR]

    def get_prep_lookup(self):
        return self.rhs if hasattr(self.rhs, "resolve_expression") else stored(str(self.rhs))


def read_stored(value: str) -> str:
    """Return what a ReasonField's column holds: a Message, or plain text as written by older releases and by users."""
    text, separator, data = value.partition(SEPARATOR)
    if not separator:
        return text
    try:
        return restored(json.loads(data), text)
    except ValueError:
        return text
