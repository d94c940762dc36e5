"""Bodies and answers of the calls for saved searches, alert rules and alerts below /api/v1/aiops."""

from __future__ import annotations

from rest_framework import serializers

from aiops.judging import log_search, rules, searches
from aiops.models import AlertRule
from kernel.fields import Invalid, NameField, StrictBool, StrictChoice, StrictInt, StrictSerializer, StrictString

DAY_S = 86_400
MAX_NAME = 64
RULE_HELP = {
    "cluster": "default: local; for administrators any",
    "namespace": "default: the user's name; for administrators any",
    "deployment": "empty: any",
    "search": "the number of a saved search; needed for the kind search",
    "threshold": "anomalies, sessions, or lines; of template_rate: lines in 5 minutes that are too many; "
    "default: 10, of session 1",
    "percent": "for the kind change",
    "window_s": "seconds that are looked at",
    "quiet_s": "seconds until it may fire again",
    "recipients": "usernames of others to notify: they may see these lines, or are in a tenant of yours",
}


class Name(StrictString):
    """A name without control characters, not blank."""

    def to_internal_value(self, data):
        value = super().to_internal_value(data)
        if not value.strip() or not value.isprintable():
            raise Invalid("must be printable text")
        return value


class FiltersIn(StrictSerializer):
    """The filters of a search, as in the list of lines; times are chosen when it is run."""

    level = StrictChoice(choices=["", *log_search.LEVELS], required=False)
    q = StrictString(required=False, allow_blank=True, max_length=log_search.MAX_Q)


for _name in searches.FILTERS:
    if _name not in ("level", "q"):
        FiltersIn._declared_fields[_name] = StrictString(
            required=False, allow_blank=True, max_length=searches.MAX_VALUE
        )


class SearchIn(StrictSerializer):
    name = Name(max_length=MAX_NAME)
    filters = FiltersIn()
    tenant = NameField(required=False, allow_blank=True, help_text="whose members can run it, too; empty: none")


class SearchChangeIn(StrictSerializer):
    """What is not given stays."""

    name = Name(max_length=MAX_NAME, required=False)
    filters = FiltersIn(required=False)
    tenant = StrictString(required=False, allow_blank=True, max_length=50, help_text="empty: shared no longer")


class SearchOut(serializers.Serializer):
    id = serializers.IntegerField(source="pk")
    owner = serializers.CharField(source="owner.username")
    name = serializers.CharField()
    filters = serializers.DictField(child=serializers.CharField())
    tenant = serializers.SerializerMethodField()
    created = serializers.DateTimeField()

    def get_tenant(self, row) -> str:
        return row.tenant.name if row.tenant_id else ""


class Usernames(serializers.ListField):
    child = StrictString(max_length=50)

    def to_internal_value(self, data):
        if not isinstance(data, list):
            raise Invalid("must be a list")
        return super().to_internal_value(data)


class RuleChangeIn(StrictSerializer):
    """What is not given stays."""

    name = Name(max_length=MAX_NAME, required=False)
    kind = StrictChoice(choices=AlertRule.Kind.choices, required=False)
    cluster = StrictString(max_length=253, required=False, allow_blank=True, help_text=RULE_HELP["cluster"])
    namespace = StrictString(max_length=253, required=False, allow_blank=True, help_text=RULE_HELP["namespace"])
    deployment = StrictString(max_length=253, required=False, allow_blank=True, help_text=RULE_HELP["deployment"])
    search = StrictInt(min_value=1, max_value=2**63 - 1, required=False, allow_null=True,
                       help_text=RULE_HELP["search"])  # fmt: skip
    threshold = StrictInt(min_value=1, max_value=1_000_000, required=False, help_text=RULE_HELP["threshold"])
    percent = StrictInt(min_value=1, max_value=100_000, required=False, help_text=RULE_HELP["percent"])
    direction = StrictChoice(choices=AlertRule.Direction.choices, required=False)
    window_s = StrictInt(min_value=15, max_value=7 * DAY_S, required=False, help_text=RULE_HELP["window_s"])
    quiet_s = StrictInt(min_value=0, max_value=30 * DAY_S, required=False, help_text=RULE_HELP["quiet_s"])
    enabled = StrictBool(required=False)
    recipients = Usernames(required=False, max_length=rules.MAX_RECIPIENTS, help_text=RULE_HELP["recipients"])


class RuleIn(RuleChangeIn):
    name = Name(max_length=MAX_NAME)
    kind = StrictChoice(choices=AlertRule.Kind.choices)


class RuleOut(serializers.Serializer):
    id = serializers.IntegerField(source="pk")
    owner = serializers.CharField(source="owner.username")
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=AlertRule.Kind.choices)
    cluster = serializers.CharField(allow_blank=True)
    namespace = serializers.CharField(allow_blank=True)
    deployment = serializers.CharField(allow_blank=True)
    search = serializers.IntegerField(source="search_id", allow_null=True)
    threshold = serializers.IntegerField()
    percent = serializers.IntegerField()
    direction = serializers.ChoiceField(choices=AlertRule.Direction.choices)
    window_s = serializers.IntegerField()
    quiet_s = serializers.IntegerField()
    enabled = serializers.BooleanField()
    recipients = serializers.SerializerMethodField()
    muted_until = serializers.DateTimeField(allow_null=True)
    created = serializers.DateTimeField()
    last_fired = serializers.DateTimeField(allow_null=True)

    def get_recipients(self, row) -> list[str]:
        return sorted(recipient.username for recipient in row.recipients.all())


class MuteIn(StrictSerializer):
    seconds = StrictInt(min_value=0, max_value=rules.MAX_MUTED_S, help_text="0: no longer muted")


class SampleOut(serializers.Serializer):
    id = serializers.CharField()
    time = serializers.IntegerField(help_text="ms since 1970")
    log = serializers.CharField(allow_blank=True)


class AlertOut(serializers.Serializer):
    id = serializers.IntegerField(source="pk")
    rule = serializers.IntegerField(source="rule_id")
    name = serializers.CharField(source="rule.name")
    at = serializers.DateTimeField()
    workload = serializers.CharField(allow_blank=True)
    msg = serializers.CharField(source="words")
    count = serializers.IntegerField()
    samples = SampleOut(many=True)
    link = serializers.CharField(allow_blank=True, help_text="path of the page with the lines")
    ended = serializers.DateTimeField(allow_null=True, help_text="of the kind template_rate: when all was as usual")
