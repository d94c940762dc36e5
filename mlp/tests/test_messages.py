"""Every refusal, fault and stored reason of the product is a message that the catalogue can translate.

A call that refuses (`Refused(…)` and its kin) or stores why something ended (`fail(…, reason, …)`) takes a literal
template, a constant or another message, never text put together on the spot: what is put together has no catalogue
entry. That the literals are in the catalogue, translated, is test_translations' part.
"""

from __future__ import annotations

import ast
import re
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.utils import translation
from django_fsm import FSMField
from rest_framework import serializers

from aiops.intake import tail
from aiops.logstore import query
from aiops.wire import watchlist
from kernel.errors import Refused, flatten
from kernel.fields import Invalid, StrictInt, StrictSerializer
from kernel.locking import DELETING, KINDS
from kernel.messages import (
    SEPARATOR,
    Message,
    clip,
    joined,
    message_of,
    restored,
    storable,
    translate,
    under,
    with_lines,
    word,
)
from kernel.models import Lifecycle, StateChange
from kernel.rest import StrictJSONParser
from tools import translations

from .source_calls import name_of, text_of

ROOT = Path(settings.BASE_DIR)
MECHANISM = ROOT / "kernel" / "messages.py"
# The parameter that is a reason, by its place in a call that has it without its name.
REASONS = {
    "fail": 1, "_fail": 1, "fail_silent": 2, "end_attempt": 2, "end_run": 2, "end_requested": 2, "cancel_running": 0,
    "note_trouble": 1, "failed": 1, "_ended": 1, "_asked": 1, "RunStatus": 3, "HttpError": 1,
}  # fmt: skip
FIELD = re.compile(r"[A-Za-z][\w-]*: ")
WITHOUT_FIELD = {"Message", "message", "RunnerError"}  # no answer of REST by itself, so its template may name a field
# DRF's own, which keep plain text only: Refused and kernel.fields.Invalid keep the message.
MESSAGELESS = {"ParseError", "serializers.ValidationError"}
# Whose message `message_of` finds; ValueError only where the code that raises it is in CARRIERS.
WITH_MESSAGE = {"Refused", "Fault", "Slow", "NoAnswer", "RunnerError", "ValueError"}
# Files and folders whose ValueErrors end in refusals and stored reasons.
CARRIERS = (
    "runners/base.py", "runners/local.py", "runners/kubernetes/", "models_app/launching.py", "aiops/wire/watchlist.py",
    "aiops/logstore/query_string.py", "aiops/logstore/query_tree.py", "aiops/logstore/query.py",
)  # fmt: skip


@lru_cache(maxsize=1)  # of the file that is being looked at: all trees together are large
def parsed(source: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a source."""
    return tuple(ast.walk(ast.parse(source)))


def put_together(node: ast.expr | None) -> bool:
    """Whether the expression builds its text at run time, so that it cannot be in a catalogue."""
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Mod)
    if isinstance(node, ast.IfExp):
        return put_together(node.body) or put_together(node.orelse)
    if isinstance(node, ast.BoolOp):
        return any(map(put_together, node.values))
    return name_of(node) in {"str", "_", "gettext", "join", "format"}


def is_bare(node: ast.expr | None) -> bool:
    """Whether a reason is plain text rather than a Message."""
    return (
        put_together(node)
        or is_plain(node)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(node.value))
    )


@cache
def plain_constants() -> set[str]:
    """Return the names of constants of the product that are plain text, and so not in the catalogue."""
    texts, messages = set(), set()
    for path in translations.source_files():
        for node in ast.parse(path.read_text()).body if path.suffix == ".py" else []:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
                (texts if text else messages).add(node.targets[0].id)
    return texts - messages


def is_plain(node: ast.expr | None) -> bool:
    return getattr(node, "id", getattr(node, "attr", "")) in plain_constants()


def offences(source: str) -> list[tuple[int, str]]:
    """Return (line, code) of each refusal or reason that is not a message."""
    calls = []
    for node in parsed(source):
        if not isinstance(node, ast.Call):
            continue
        called = name_of(node)
        if called in ("ParseError", "ValidationError") and ast.unparse(node.func) in MESSAGELESS:
            calls.append((node.lineno, ast.unparse(node)))
        elif called in translations.MESSAGES:
            place = 1 if called == "HttpError" else 0
            template = node.args[place] if len(node.args) > place else None
            named = isinstance(template, ast.Constant) and FIELD.match(str(template.value)) is not None
            if put_together(template) or is_plain(template) or (named and called not in WITHOUT_FIELD):
                calls.append((node.lineno, ast.unparse(node)))
        elif called in REASONS or any(keyword.arg == "reason" for keyword in node.keywords):
            place = REASONS.get(called, len(node.args))
            given = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            if any(map(is_bare, [*node.args[place : place + 1], *given])):
                calls.append((node.lineno, ast.unparse(node)))
    return calls


def foreign_texts(source: str) -> list[tuple[int, str]]:
    """Return (line, code) of each refusal with the text of a caught exception that carries no message."""
    calls = []
    for handler in parsed(source):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if {ast.unparse(each).rpartition(".")[2] for each in caught} <= WITH_MESSAGE:
            continue
        for node in ast.walk(handler):
            if name_of(node) in translations.MESSAGES and f"message_of({handler.name})" in map(ast.unparse, node.args):
                calls.append((node.lineno, ast.unparse(node)))
    return calls


def bare_value_errors(source: str) -> list[tuple[int, str]]:
    """Return (line, code) of each ValueError with plain text, which `message_of` could only return as it is."""
    errors = [node for node in parsed(source) if name_of(node) == "ValueError"]
    return [(node.lineno, ast.unparse(node)) for node in errors if any(map(is_bare, node.args))]


@cache
def problems() -> dict[str, list[str]]:
    """Return what is wrong in the sources, by the rule: each file is parsed once for all of them."""
    problems: dict[str, list[str]] = {"not a message": [], "not extracted": []}
    for path in translations.source_files():
        name = path.relative_to(ROOT)
        if path.suffix != ".py":
            continue
        source = path.read_text()
        problems["not extracted"] += [f"{name}: {each}" for each in overlooked(source)]
        if path != MECHANISM and name.parts[:2] not in STANDALONE:
            calls = offences(source) + foreign_texts(source)
            calls += bare_value_errors(source) if str(name).startswith(CARRIERS) else []
            problems["not a message"] += [f"{name}:{line}: {code}" for line, code in calls]
    return problems


def test_every_refusal_and_reason_is_a_message_that_can_be_translated():
    assert problems()["not a message"] == []


# Programs of their own, without the platform's code: what they say goes to a terminal, a script or a model's caller.
STANDALONE = {("client", "mlp_client"), ("datasets", "data_client"), ("apps", "serving"), ("jobs", "report")}


@pytest.mark.parametrize(
    ("source", "offends"),
    [
        ("raise Refused(f'name: {x}')", True),
        ("raise Refused('name: must be short')", True),
        ("raise Refused('must be %s' % x, field='name')", True),
        ("raise Refused('must be ' + x)", True),
        ("raise Refused(_('must be short'))", True),
        ("raise Refused(str(problem))", True),
        ("raise serializers.ValidationError('must be a list')", True),
        ("raise ParseError('not valid')", True),
        ("raise RunnerError(f'run {name}: still running')", True),
        ("raise NoAnswer(f'{subject}: no subscriber')", True),
        ("raise RunnerError('gpu: %(free)s free', free=free)", False),
        ("raise HttpError(404, 'path: no such file')", True),
        ("lifecycle.fail(pk, 'broken', by=by)", True),
        ("job.fail(by=by, reason=f'attempt {n}')", True),
        ("raise Refused('must be %(x)s', field='name', x=x)", False),
        ("raise Refused(BAD_TOKEN, field='token')", False),
        ("lifecycle.fail(pk, Message('broken'), by=by)", False),
        ("job.fail(by=by, reason='')", False),
    ],
)
def test_text_built_at_run_time_is_detected(source, offends):
    assert bool(offences(source)) == offends


def overlooked(source: str) -> list[str]:
    """Return the templates that the extraction does not see: those of a message inside another call of a message."""
    templates = [
        call.args[0].value
        for call in parsed(source)
        if name_of(call) in translations.MESSAGES
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]
    seen: set[str] = set()
    names = {*translations.MESSAGES, *translations.DJANGO}
    calls = [node for node in parsed(source) if name_of(node) in names or isinstance(node, ast.JoinedStr)]
    for _context, texts in translations.in_python(text_of(source, calls)) if templates else ():
        seen |= {texts} if isinstance(texts, str) else set(texts)
    return [template for template in templates if translations.has_words(template) and template not in seen]


def test_every_template_is_extracted():
    assert overlooked("raise RunnerError(under('gpu', Message('none is free')))") == ["none is free"]
    assert problems()["not extracted"] == []


@pytest.mark.parametrize(
    ("caught", "offends"),
    [("SuspiciousOperation", True), ("(ValueError, OSError)", True), ("(Refused, ValueError)", False)],
)
def test_the_text_of_an_exception_without_a_message_is_detected(caught, offends):
    source = f"try:\n    work()\nexcept {caught} as problem:\n    raise Refused(message_of(problem), field='q')"
    assert bool(foreign_texts(source)) == offends


@pytest.mark.parametrize(
    ("source", "offends"),
    [
        ("raise ValueError('mount: too large')", True),
        ("raise ValueError(f'{name}: unknown')", True),
        ("raise ValueError(under('mount', Message('too large')))", False),
        ("raise ValueError(problem)", False),
    ],
)
def test_a_value_error_with_plain_text_is_detected(source, offends):
    assert bool(bare_value_errors(source)) == offends


@pytest.mark.parametrize(
    ("work", "english", "chinese"),
    [
        (
            lambda: watchlist.check({"c1": {"shop": "cart"}}),
            "workloads.c1.shop: must be a list of deployments",
            "workloads.c1.shop: 必须是部署列表",
        ),
        (
            lambda: query.parse({"query": {"query_string": {"query": "(cart"}}}),
            "query_string: the parenthesis at position 1 is not closed",
            "query_string: 位置 1 处的括号没有闭合",
        ),
        (lambda: StrictJSONParser().parse(BytesIO(b"{")), "body: not valid JSON", "body: 不是有效的 JSON"),
        (
            lambda: tail.Reader(AnonymousUser(), "&".join(["q=x"] * 2000)),
            "query: must have fewer fields",
            "query: 字段过多",
        ),
    ],
)
def test_what_is_wrong_with_a_request_is_translated_to_its_end(work, english, chinese):
    with pytest.raises((Refused, ValueError)) as problem:
        work()
    assert str(problem.value) == english
    with translation.override("zh-hans"):
        assert translate(message_of(problem.value)) == chinese


def machines() -> list[tuple[type, FSMField]]:
    return [(row, field) for row in apps.get_models() for field in row._meta.fields if isinstance(field, FSMField)]


def test_every_transition_has_a_refusal_message():
    assert any(issubclass(model, Lifecycle) for model, _field in machines())
    for model, field in machines():
        for each in field.get_all_transitions(model):
            assert each.custom.get("refused"), f"{model.__name__}.{each.name}"


def test_parameters_of_refusals_are_in_the_catalogue():
    used = {message.id: message for message in translations.used(translations.catalogue("zh_Hans"))}
    states, kinds = set(), set()
    for model, field in machines():
        values = {str(value) for value, _label in field.choices}
        if any("%(state)s" in each.custom["refused"] for each in field.get_all_transitions(model)):
            states |= values
        if DELETING in values:
            kinds.add(model._meta.model_name)
    for text in {*KINDS, *states, *kinds}:
        assert translations.is_translated(used[text]), text


# --- a message -----------------------------------------------------------------------------------------------------
CANCELLED = Message("cancelled")
NESTED = Message("attempt %(number)s: %(reason)s", number=2, reason=CANCELLED)


def test_a_message_is_its_english_text():
    assert NESTED == "attempt 2: cancelled"
    assert {NESTED: 1}["attempt 2: cancelled"] == 1
    assert Message("100 % full") == "100 % full"


def test_a_message_is_translated_with_its_parameters():
    with translation.override("zh-hans"):
        shown = translate(NESTED)
        assert translate(CANCELLED) in shown
        assert translate(CANCELLED) != "cancelled"
        assert translate("cancelled") == "cancelled", "plain text is somebody's own and stays"
    assert NESTED == "attempt 2: cancelled"


def test_an_exception_as_a_parameter_stays_a_message():
    message = Message("could not be started: %(problem)s", problem=Refused("cancelled", field="entry"))
    assert message == "could not be started: entry: cancelled"
    with translation.override("zh-hans"):
        assert "entry: " + translate(CANCELLED) in translate(message)
    assert Message("%(problem)s", problem=ValueError(CANCELLED)).params["problem"].params == {}


def test_messages_are_joined_prefixed_clipped_and_cleaned():
    assert joined([under("name", CANCELLED), "as it is"]) == "name: cancelled; as it is"
    assert with_lines(CANCELLED, []) is CANCELLED
    long = with_lines(CANCELLED, ["line"] * 100)
    short = clip(long, 30)
    assert isinstance(short, Message)
    assert (len(short), short) == (30, long[:30])
    assert clip(CANCELLED, 3) == "can"
    assert storable(Message("%(log)s", log="a\x00b")) == "a\ufffdb"


def test_invalid_data_is_not_restored_as_a_message():
    for data in (None, "x", [], {}, {"template": "%(x)s", "params": {"y": 1}}, {"template": "x", "params": "y"}):
        assert restored(data, "as it was") == "as it was"
    assert restored(NESTED.as_data(), "").params["reason"] == CANCELLED


# --- stored --------------------------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_a_stored_reason_is_read_back_as_the_message():
    row = StateChange.objects.create(kind="job", owner="alice", name="train", object_id=1, by="alice", reason=NESTED)
    row.refresh_from_db()
    assert row.reason == NESTED
    assert row.reason.params == NESTED.params
    assert StateChange.objects.filter(reason__startswith="attempt 2").exists()
    assert StateChange.objects.filter(reason__contains="cancelled").exists()


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["", "exit code 1\n%(x)s", 'x{"template": "cancelled", "params": {}}'])
def test_plain_reasons_of_older_releases_and_users_are_unchanged(text):
    row = StateChange.objects.create(kind="job", owner="alice", name="train", object_id=1, by="alice", reason=text)
    row.refresh_from_db()
    assert row.reason == text
    assert not isinstance(row.reason, Message)


@pytest.mark.django_db
def test_messages_cannot_be_forged():
    forged = f'x{SEPARATOR}{{"template": "cancelled", "params": {{}}}}'
    row = StateChange.objects.create(kind="job", owner="alice", name="train", object_id=1, by="alice", reason=forged)
    row.refresh_from_db()
    assert row.reason == forged.replace(SEPARATOR, " ")


# --- DRF -----------------------------------------------------------------------------------------------------------
class Amount(StrictSerializer):
    cpu = StrictInt(min_value=1, max_value=8)
    names = serializers.ListField(child=StrictInt(min_value=1))


def test_a_serializer_keeps_the_messages_of_its_fields():
    with pytest.raises(serializers.ValidationError) as refusal:
        Amount.read({"cpu": 9, "names": [0]})
    message = flatten(refusal.value.detail)
    assert message.startswith("cpu: must be 1 to 8; names: ")
    with translation.override("zh-hans"):
        assert translate(message).startswith("cpu: " + translate(Message("must be %(low)s to %(high)s", low=1, high=8)))


def test_a_refusal_has_a_separate_field():
    refusal = Refused("must be %(low)s to %(high)s", field="cpu", low=1, high=8)
    assert (refusal.field, refusal.problem, refusal.msg) == ("cpu", "must be 1 to 8", "cpu: must be 1 to 8")
    assert Invalid(refusal.problem).detail == ["must be 1 to 8"]
    assert word("ready") == "ready"
