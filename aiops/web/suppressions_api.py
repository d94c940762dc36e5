"""REST on what is marked as normal in watched workloads, and no longer reported."""

from __future__ import annotations

from rest_framework import serializers

from aiops.judging import rules, suppressions
from aiops.models import Suppression
from kernel.effects import DESTROY, READ
from kernel.fields import Invalid, StrictInt, StrictSerializer, StrictString
from kernel.locking import get_or_missing
from kernel.pages import number_in
from kernel.views import Call, ContractView

from .alerts_api import FIRST, ID, MADE
from .sessions_api import ReasonOut, reason_of

MAX_NOTE = 200
FILTERS = (
    ("cluster", str, "cluster"),
    ("namespace", str, "namespace"),
    ("deployment", str, "job, application or component"),
)


class Note(StrictString):
    """A note in one line; may be empty."""

    def to_internal_value(self, data):
        value = super().to_internal_value(data).strip()
        if not value.isprintable():
            raise Invalid("must be printable text")
        return value


class SuppressionIn(StrictSerializer):
    """Either an unusual session or an unusual rate."""

    session = StrictInt(required=False, min_value=1, max_value=10**15, help_text="`id` in `aiops/session_anomalies`")
    rate = StrictInt(required=False, min_value=1, max_value=10**15, help_text="`id` in `aiops/rate_anomalies`")
    note = Note(required=False, allow_blank=True, max_length=MAX_NOTE, help_text="why it is normal")

    def validate(self, attrs):
        if ("session" in attrs) == ("rate" in attrs):
            raise Invalid("must be either a session or a rate", field="session")
        return attrs


class SuppressionOut(serializers.Serializer):
    id = serializers.IntegerField(source="pk")
    kind = serializers.ChoiceField(choices=Suppression.Kind.choices)
    workload = serializers.SerializerMethodField()
    value = serializers.CharField(allow_blank=True, help_text="session: the id of the one that was marked")
    reasons = serializers.SerializerMethodField(help_text="session: why it was unusual")
    template_cluster_id = serializers.IntegerField(source="template_id", allow_null=True, help_text="of a rate")
    template_matched = serializers.CharField(source="template", allow_blank=True, help_text="of a rate")
    lines = serializers.IntegerField(
        help_text="session: its lines; often: the most in a window, up to about twice of which are usual; silent: "
        "active minutes"
    )
    since = serializers.IntegerField(help_text="of the one that was marked, ms since 1970")
    note = serializers.CharField(allow_blank=True)
    by = serializers.SerializerMethodField()
    at = serializers.DateTimeField()

    def get_workload(self, row) -> str:
        return "/".join(suppressions.names_of(row))

    def get_reasons(self, row) -> list:
        return ReasonOut(map(reason_of, row.reasons), many=True).data

    def get_by(self, row) -> str:
        return row.by.username if row.by_id else ""


class Suppressions(ContractView):
    """Only the owner of the namespace and administrators mark what is normal. What is marked is not listed with the
    anomalies, and is reported by no alert rule.
    """

    kind = "suppression"
    calls = {
        "GET": Call("List what is marked as normal, newest first", READ, out=SuppressionOut, many=True, query=FILTERS),
        "POST": Call("Mark an unusual session or rate as normal", body=SuppressionIn, out=SuppressionOut, status=201),
    }

    def get(self, request):
        given = rules.named_in(request.query_params)
        return self.page(suppressions.visible(request.user, given))

    def post(self, request):
        given = self.body()
        mark = suppressions.mark_session if "session" in given else suppressions.mark_rate
        return self.answer(mark(request.user, given.get("session", given.get("rate")), given.get("note", "")))


class SuppressionDetail(ContractView):
    kind = "suppression"
    segments = {"id": ID}
    calls = {
        "GET": Call("Get what is marked as normal", READ, out=SuppressionOut, after={"getSuppressions": FIRST}),
        "DELETE": Call("Report it again", DESTROY, after={"postSuppressions": MADE}),
    }

    def get(self, request, id):
        return self.answer(get_or_missing(suppressions.visible(request.user), number_in(id), self.kind))

    def delete(self, request, id):
        suppressions.undo(request.user, number_in(id))
        return self.answer()
