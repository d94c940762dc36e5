"""Alert rules: create, change, mute and delete them; who gets their alerts. Called by REST, pages and alerts.check.

A user's rule is about one namespace that the user may see; an administrator's about any. Whether the owner and each
recipient may see the lines is asked again at each check, so a right that is lost ends the alerts at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.lifecycle import hold_active
from accounts.models import User
from aiops import logstore
from aiops.models import AlertRule
from kernel.errors import Refused
from kernel.locking import Missing, get_or_missing, lock_row
from kernel.messages import Message

from . import scope, searches

Kind, Direction = AlertRule.Kind, AlertRule.Direction
MAX_RECIPIENTS = 20
MAX_MUTED_S = 30 * 86_400
NAMED = ("cluster", "namespace", "deployment")
FIELDS = ("name", "kind", *NAMED, "threshold", "percent", "direction", "window_s", "quiet_s", "enabled")
DEFAULTS: dict[str, dict] = {  # of a new rule, where they are not those of the table
    Kind.TEMPLATE_RATE: {"direction": Direction.BOTH},
    Kind.SESSION: {"threshold": 1},
}
NO_RECIPIENT = Message("must be users who may see these lines, or are in a tenant of yours")


def named_in(query: Mapping[str, str]) -> tuple[str, str, str]:
    """Return (cluster, namespace, deployment) of a query as they are stored, "" for each that is not given."""
    cluster, namespace, deployment = (logstore.clean(query.get(name)) for name in NAMED)
    return cluster, namespace, deployment


def visible(user: User):
    """Return the rules that the user may see and change: their own, all of them for an administrator."""
    rows = AlertRule.objects.select_related("owner", "search").prefetch_related("recipients")
    return rows if user.is_administrator else rows.filter(owner=user)


def find(user: User, number: int | None) -> AlertRule:
    """Return the rule of that number. Raises Missing."""
    return get_or_missing(visible(user), number, "alert rule")


def require_room(user: User) -> None:
    """Raise Refused for a user who has as many rules as are allowed."""
    most = settings.AIOPS_RULES_PER_USER
    if not user.is_administrator and AlertRule.objects.filter(owner=user).count() >= most:
        raise Refused("at most %(most)s alert rules of a user", field="name", most=most)


def create(user: User, values: dict) -> AlertRule:
    """Create a rule of the user's; `search` is a number, `recipients` are names of users. Raises Refused, Missing."""
    now = timezone.now()
    with transaction.atomic():
        hold_active(user)
        require_room(user)
        usual = DEFAULTS.get(values.get("kind"), {})
        return _set(AlertRule(owner=user, created=now, checked=now), usual | values)


def change(rule: AlertRule, values: dict) -> AlertRule:
    """Change the given ones of a rule's values. Its next check is at once. Raises Refused, Missing."""
    with transaction.atomic():
        row = lock_row(AlertRule, pk=rule.pk)
        if row is None:
            raise Missing("alert rule")
        if values.get("kind", row.kind) != row.kind:
            row.checked, row.last_fired = timezone.now(), None
        row.next_check = None
        return _set(row, values)


def mute(rule: AlertRule, seconds: int) -> AlertRule:
    """Send no alerts of the rule for so long; 0 ends it."""
    rule.muted_until = timezone.now() + timedelta(seconds=seconds) if seconds else None
    rule.save(update_fields=["muted_until"])
    return rule


def _set(rule: AlertRule, values: dict) -> AlertRule:
    for name in FIELDS:
        if name in values:
            setattr(rule, name, values[name])
    if "search" in values:
        number = values["search"]
        rule.search = searches.own(rule.owner, number) if number is not None else None
    _check(rule)
    recipients = _people(rule, values["recipients"]) if "recipients" in values else None
    try:
        with transaction.atomic():
            rule.save()
    except IntegrityError as problem:
        raise Refused(searches.TAKEN, field="name") from problem
    if recipients is not None:
        rule.recipients.set(recipients)
    elif not all(entitled(rule, recipient) for recipient in rule.recipients.all()):
        raise Refused(NO_RECIPIENT, field="recipients")
    return rule


def _check(rule: AlertRule) -> None:
    """Check the rule as a whole, after the names of a user's own workloads have been filled in. Raises Refused."""
    if not rule.owner.is_administrator:
        rule.cluster = rule.cluster or scope.LOCAL
        rule.namespace = rule.namespace or rule.owner.username
        if rule.cluster != scope.LOCAL:
            raise Refused("only administrators can watch other clusters", field="cluster")
        if not allowed(rule):
            raise Refused("must be a namespace whose lines you may see", field="namespace")
    if rule.kind == Kind.SEARCH and rule.search is None:
        raise Refused("is required", field="search")
    if rule.search is not None and rule.kind not in (Kind.SEARCH, Kind.CHANGE):
        raise Refused("only for rules on searches and changes", field="search")
    if rule.kind == Kind.CHANGE and rule.direction == Direction.DOWN and rule.percent > 100:
        raise Refused("must be at most 100 for fewer lines", field="percent")


def allowed(rule: AlertRule) -> bool:
    """Return whether the rule's owner may see the lines that it is about."""
    return rule.owner.is_active and scope.may_see(rule.owner, rule.cluster, rule.namespace)


def entitled(rule: AlertRule, user: User) -> bool:
    """Return whether the user may be sent alerts of the rule with sample lines.

    They may see the lines themselves, or the owner of the lines sends them to somebody of a tenant of theirs.
    """
    if not user.is_active:
        return False
    if scope.may_see(user, rule.cluster, rule.namespace):
        return True
    own = rule.cluster == scope.LOCAL and rule.namespace == rule.owner.username
    return own and scope.share_a_tenant(user, rule.owner)


def _people(rule: AlertRule, names: Iterable[str]) -> list[User]:
    wanted = sorted(set(names) - {rule.owner.username})
    if len(wanted) > MAX_RECIPIENTS:
        raise Refused("at most %(most)s recipients", field="recipients", most=MAX_RECIPIENTS)
    people = list(User.objects.filter(username__in=wanted))
    # One answer for unknown and not entitled ones, so that names are not disclosed.
    if len(people) < len(wanted) or not all(entitled(rule, person) for person in people):
        raise Refused(NO_RECIPIENT, field="recipients")
    return people


def audience(rule: AlertRule) -> list[User]:
    """Return who gets the alerts of the rule now: the owner, and the recipients who are still entitled."""
    return [rule.owner, *(recipient for recipient in rule.recipients.all() if entitled(rule, recipient))]


def muted(rule: AlertRule, now: datetime) -> bool:
    return rule.muted_until is not None and now < rule.muted_until
