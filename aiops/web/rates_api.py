"""REST on how often templates come in the logs of watched workloads."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.response import Response

from aiops.judging import rate_alerts, rate_table, rules, scope
from aiops.judging.rate_minutes import names_of
from aiops.models import RateAnomaly
from kernel.effects import READ
from kernel.locking import Missing
from kernel.views import Call, ContractView, query_int

MAX = 200
NAMES = (
    ("cluster", str, "default: local"),
    ("namespace", str, "default: the user's name"),
    ("deployment", str, "job, application or component"),
)
FILTERS = (
    ("cluster", str, "cluster"),
    ("namespace", str, "namespace"),
    ("deployment", str, "job, application or component"),
    ("current", {"type": "string", "enum": ["", "true", "false"]}, "true: that go on; false: that have ended"),
)


class RateOut(serializers.Serializer):
    template_cluster_id = serializers.IntegerField(source="number")
    template_matched = serializers.CharField(source="template", allow_blank=True)
    log = serializers.CharField(allow_blank=True, help_text="the newest line")
    lines = serializers.IntegerField(help_text="of the last day")
    last = serializers.IntegerField(help_text="ms since 1970")
    minutes = serializers.IntegerField(help_text="of the windows that low, high and most are about")
    low = serializers.IntegerField(allow_null=True, help_text="lines in a window, usually; null: not known yet")
    high = serializers.IntegerField(allow_null=True, help_text="lines in a window, usually")
    most = serializers.IntegerField(allow_null=True, help_text="more lines than this in a window are too often")
    gap = serializers.IntegerField(allow_null=True, help_text="longest usual gap in active minutes; null: not regular")
    silent_after = serializers.IntegerField(allow_null=True, help_text="active minutes until it is silent")
    unusual = serializers.ListField(source="kinds", child=serializers.ChoiceField(choices=RateAnomaly.Kind.choices))


class RateAnomalyOut(serializers.Serializer):
    id = serializers.IntegerField(source="pk")
    kind = serializers.ChoiceField(choices=RateAnomaly.Kind.choices)
    workload = serializers.SerializerMethodField()
    template_cluster_id = serializers.IntegerField(source="template_id")
    template_matched = serializers.CharField(source="template", allow_blank=True)
    msg = serializers.SerializerMethodField()
    lines = serializers.IntegerField(help_text="often: the most in a window; silent: active minutes without any")
    low = serializers.IntegerField(help_text="the usual range of that")
    high = serializers.IntegerField()
    since = serializers.IntegerField(help_text="ms since 1970")
    until = serializers.IntegerField(allow_null=True, help_text="ms since 1970; null: it goes on")
    recovered = serializers.BooleanField(help_text="it ended because the template came as usual")

    def get_workload(self, row) -> str:
        return "/".join(names_of(row.clock))

    def get_msg(self, row) -> str:
        return rate_alerts.describe(row)


class Rates(ContractView):
    """The most frequent templates of the last day, at most 200."""

    kind = "workload"
    calls = {
        "GET": Call("List how often a workload's templates usually come", READ, out=RateOut, many=True, query=NAMES,
                    needs=("deployment",)),
    }  # fmt: skip

    def get(self, request):
        cluster, namespace, deployment = rules.named_in(request.query_params)
        names = cluster or scope.LOCAL, namespace or request.user.username, deployment
        if not scope.may_see(request.user, *names[:2]):
            raise Missing("workload")
        rows = rate_table.templates(request.user, names)
        limit, offset = query_int(request, "limit", MAX, 1, 1000), query_int(request, "offset", 0, 0)
        page = RateOut(rows[offset : offset + limit], many=True).data
        return Response(page, headers={"X-Total-Count": str(len(rows))})


class RateAnomalies(ContractView):
    kind = "unusual rate"
    calls = {
        "GET": Call("List times in which a template came too often or was silent, newest first", READ,
                    out=RateAnomalyOut, many=True, query=FILTERS),
    }  # fmt: skip

    def get(self, request):
        given = rules.named_in(request.query_params)
        rows = rate_table.visible(request.user, given)
        if current := request.query_params.get("current"):
            rows = rows.filter(until__isnull=current == "true")
        return self.page(rows)
