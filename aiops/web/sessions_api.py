"""REST on the unusual sessions of watched workloads."""

from __future__ import annotations

from rest_framework import serializers

from aiops import logstore
from aiops.judging import rules, session_table
from aiops.judging.rate_minutes import names_of
from aiops.models import SessionAnomaly
from kernel.effects import READ
from kernel.messages import translate
from kernel.views import Call, ContractView

FILTERS = (
    ("cluster", str, "cluster"),
    ("namespace", str, "namespace"),
    ("deployment", str, "job, application or component"),
    ("value", str, "of these lines only: the id that ties them together"),
)


class ReasonOut(serializers.Serializer):
    kind = serializers.ChoiceField(choices=SessionAnomaly.Reason.choices)
    template_matched = serializers.CharField(allow_blank=True)
    second = serializers.CharField(allow_null=True, help_text="order: the template that came before the other")
    lines = serializers.IntegerField(allow_null=True, help_text="with that template in the session")
    usual = serializers.IntegerField(allow_null=True, help_text="in the most similar normal session")
    msg = serializers.CharField()


class SessionAnomalyOut(serializers.Serializer):
    id = serializers.IntegerField(source="pk")
    workload = serializers.SerializerMethodField()
    attribute = serializers.CharField(allow_blank=True, help_text="that has the value; empty: the line has it")
    value = serializers.CharField(help_text="the id that ties the lines together")
    since = serializers.IntegerField(help_text="ms since 1970")
    last = serializers.IntegerField(help_text="ms since 1970")
    lines = serializers.IntegerField()
    reasons = serializers.SerializerMethodField()
    filters = serializers.SerializerMethodField(help_text="of `aiops/logs`, for the lines of the session")

    def get_workload(self, row) -> str:
        return "/".join(names_of(row.clock))

    def get_reasons(self, row) -> list:
        return ReasonOut(map(reason_of, row.reasons), many=True).data

    def get_filters(self, row) -> dict:
        return session_table.filters(row)


def reason_of(reason: list) -> dict:
    """Return one of SessionAnomaly.reasons as ReasonOut shows it."""
    kind, template, *more = reason
    shown = {"kind": kind, "template_matched": template, "second": None, "lines": None, "usual": None}
    shown |= {"second": more[0]} if kind == SessionAnomaly.Reason.ORDER else {"lines": more[0], "usual": more[1]}
    return {**shown, "msg": translate(session_table.describe(reason))}


class SessionAnomalies(ContractView):
    kind = "unusual session"
    calls = {
        "GET": Call("List sessions that differ from all normal ones, newest first", READ,
                    out=SessionAnomalyOut, many=True, query=FILTERS),
    }  # fmt: skip

    def get(self, request):
        given = rules.named_in(request.query_params)
        rows = session_table.visible(request.user, given)
        if value := logstore.clean(request.query_params.get("value")):
            rows = rows.filter(value=value)
        return self.page(rows)
