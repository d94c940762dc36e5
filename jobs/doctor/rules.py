"""The failure rules in force, the shipped ones and the administrators', in their order, and the search for a match.

Administrators write the patterns, and users' scripts write the text. The engine is RE2, whose time is linear in the
length of the text for any pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import re2
from django.db.models import Case, CharField, Count, F, OuterRef, QuerySet, Subquery, Value, When
from django.db.models.functions import Cast, Coalesce, Concat

from jobs.models import Diagnosis, FailureRule, Where
from jobs.models.doctor import CHINESE
from kernel.errors import Refused
from kernel.messages import Message, from_data

from .shipped_code import FIRST, SHIPPED, STEP

MAX_GROUP = 300
PLACEHOLDER = re.compile(r"%\((\w+)\)s")
ALWAYS = ("entry", "gpu", "network", "ram", "runtime")  # may stand in every explanation (facts.base)
OPTIONS = re2.Options()
OPTIONS.log_errors = False
OPTIONS.max_mem = 4 << 20


@dataclass(frozen=True)
class Rule:
    """A rule in force. `titles` and `explanations` are by language; those of shipped rules are translated by the
    catalogue.
    """

    key: str
    where: str
    pattern: str
    title: str
    explanation: str
    action: str
    order: int
    needs: str = ""
    title_zh: str = ""
    explanation_zh: str = ""

    def search(self, text: str) -> dict[str, str] | None:
        """Return the groups of the first match; None if the pattern does not match."""
        match = compiled(self.pattern).search(text)
        if match is None:
            return None
        return {name: (value or "")[:MAX_GROUP] for name, value in match.groupdict().items()}

    def words(self, facts: Mapping[str, object]) -> dict:
        """Return the title and the explanation with the facts filled in, as columns of a diagnosis."""
        texts = {"title": filled(self.title, facts), "explanation": filled(self.explanation, facts)}
        chinese = {
            name: str(filled(template, facts))
            for name, template in (("title", self.title_zh), ("explanation", self.explanation_zh))
            if template
        }
        return {**texts, "local": {CHINESE: chinese} if chinese else {}}


@lru_cache(maxsize=500)
def compiled(pattern: str):
    """Return the compiled pattern. Raises Refused for an invalid one."""
    try:
        return re2.compile(f"(?m){pattern}", OPTIONS)
    except re2.error as problem:
        text = problem.args[0] if problem.args else ""
        words = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        raise Refused("the pattern is not valid: %(problem)s", field="pattern", problem=words[:200])


def filled(template: str, facts: Mapping[str, object]):
    """Return the template as a message with the facts that it names as parameters; unknown facts are empty."""
    names = set(PLACEHOLDER.findall(template))
    return from_data({"template": template, "params": {name: _plain(facts.get(name, "")) for name in names}})


def _plain(value: object) -> object:
    if isinstance(value, Message):
        return value.as_data()
    return value if isinstance(value, str | int | float) else str(value)


def in_force() -> list[Rule]:
    """Return all active rules in their order."""
    rows = list(FailureRule.objects.all())
    changed = {row.shipped: row for row in rows if row.shipped}
    rules = []
    for number, shipped in enumerate(SHIPPED):
        row = changed.get(shipped.key)
        if row is None or row.active:
            rules.append(of_shipped(shipped, row.order if row else FIRST + STEP * number))
    rules += [of_row(row) for row in rows if not row.shipped and row.active]
    return sorted(rules, key=lambda rule: rule.order)  # a stable sort: of equals the shipped one is first


def of_shipped(rule, order: int) -> Rule:
    return Rule(rule.key, rule.where, rule.pattern, rule.title, rule.explanation, rule.action, order, rule.needs)


def of_row(row: FailureRule) -> Rule:
    return Rule(
        row.key, row.where, row.pattern, row.title, row.explanation, row.action, row.order,
        title_zh=row.title_zh, explanation_zh=row.explanation_zh,
    )  # fmt: skip


def first_match(texts: Mapping[str, str], situations: set[str]) -> tuple[Rule, dict[str, str]] | None:
    """Return the first rule that matches the text it is searched in, with its groups."""
    for rule in in_force():
        if rule.needs and rule.needs not in situations:
            continue
        try:
            groups = rule.search(texts.get(rule.where, ""))
        except Refused:  # stored before the engine refused it: the others go on
            continue
        if groups is not None:
            return rule, groups
    return None


def check(row: FailureRule) -> None:
    """Validate a rule before it is stored. Raises Refused, naming the field."""
    compiled(row.pattern)
    rule = of_row(row)
    if rule.search("") is not None:
        raise Refused("must not match an empty text: the rule would match every failure", field="pattern")
    if rule.search(row.example) is None:
        raise Refused("the pattern does not match the example", field="example")
    groups = {*compiled(row.pattern).groupindex, *ALWAYS}
    for name in ("title", "title_zh", "explanation", "explanation_zh"):
        for unknown in set(PLACEHOLDER.findall(getattr(row, name))) - groups:
            raise Refused("the pattern has no group %(name)s", field=name, name=unknown)
        try:
            filled(getattr(row, name), {})
        except (KeyError, TypeError, ValueError):
            raise Refused("a percent sign must be doubled, unless it begins the name of a group", field=name)


def save(row: FailureRule) -> FailureRule:
    """Store an administrator's rule, or an administrator's changes of a shipped rule. Raises Refused."""
    if not row.shipped:
        check(row)
    row.save()
    return row


def with_counts(rows: QuerySet) -> QuerySet:
    """Return the rules with `explained`, the number of failures that each has explained."""
    key = Case(When(shipped="", then=Concat(Value("own:"), Cast("pk", CharField()))), default=F("shipped"))
    count = Diagnosis.objects.filter(rule=OuterRef("of_key")).order_by().values("rule").annotate(n=Count("pk"))
    return rows.annotate(of_key=key).annotate(explained=Coalesce(Subquery(count.values("n")), 0))


def matches(row: FailureRule, diagnosis: Diagnosis) -> bool:
    """Return whether the rule's pattern matches what is stored of a failure."""
    reason = str(diagnosis.job.reason)
    texts = {
        Where.EXCEPTION: "\n".join(filter(None, [diagnosis.cause, diagnosis.raised])) or reason,
        Where.LOG: "\n".join([reason, diagnosis.raised]),
        Where.REASON: reason.partition("\n")[0],
    }
    try:
        return of_row(row).search(texts[row.where]) is not None
    except Refused:
        return False


def sync() -> None:
    """Update the rows of the shipped rules. Their `active` and `order`, set by administrators, and administrators'
    rules are kept.
    """
    known = {row.shipped: row for row in FailureRule.objects.exclude(shipped="")}
    for number, shipped in enumerate(SHIPPED):
        words = {
            name: getattr(shipped, name) for name in ("title", "where", "pattern", "explanation", "action", "example")
        }
        row = known.pop(shipped.key, None)
        if row is None:
            FailureRule.objects.bulk_create(
                [FailureRule(shipped=shipped.key, order=FIRST + STEP * number, **words)], ignore_conflicts=True
            )
        elif any(getattr(row, name) != value for name, value in words.items()):
            FailureRule.objects.filter(pk=row.pk).update(**words)
    FailureRule.objects.filter(pk__in=[row.pk for row in known.values()]).delete()  # no longer shipped
