"""The request and response bodies of the APP-manager."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.doctor.serializers import HolderOut
from jobs.packages.named.serializers import EnvironmentField
from jobs.serializers import GpuTypeField
from kernel.errors import Refused
from kernel.fields import NameField, StrictBool, StrictInt, StrictNumber, StrictSerializer, StrictString, TitleField
from kernel.pages import app_address
from kernel.resource_fields import CpuField, GpuField, RamField

from . import callers, canaries, replica_range, request_limits
from .models import Application, AppRun, Rollout, State


class ReplicasIn(StrictSerializer):
    min = StrictInt(
        required=False, min_value=0, max_value=replica_range.MAX, help_text="0: it sleeps while nobody asks"
    )
    max = StrictInt(required=False, min_value=1, max_value=replica_range.MAX)
    target = StrictInt(
        required=False, min_value=1, max_value=replica_range.MAX_TARGET,
        help_text=f"requests at once per replica; {replica_range.TARGET} where min and max differ and none is given",
    )  # fmt: skip


class AppIn(StrictSerializer):
    name = NameField()
    title = TitleField()
    model_name = NameField(required=False)
    follows = StrictString(
        required=False, max_length=520, help_text="an alias such as models:/churn@champion, instead of model_name"
    )
    may_restart = StrictBool(
        required=False, help_text="when the alias moves and there is no room for two runs: restart instead of waiting"
    )
    tenant = NameField(required=False)
    gpu = GpuField()
    gpu_type = GpuTypeField()
    cpu = CpuField()
    ram = RamField()
    public = StrictBool(required=False, help_text="Public (no token required)")
    environment = EnvironmentField(
        help_text="a named environment of the tenant, torch-cpu@3 or torch-cpu, in place of the model's packages"
    )
    replicas = ReplicasIn(required=False, help_text="how many runs serve it; one without this")

    def validate(self, values: dict) -> dict:
        if not values.get("model_name") and not values.get("follows"):
            raise Refused("give a model, or an alias in follows", field="model_name")
        if values.get("model_name") and values.get("follows"):
            raise Refused("give either model_name or follows", field="follows")
        return values


class AppMoveIn(StrictSerializer):
    model_name = NameField(required=False)
    follows = StrictString(
        required=False, max_length=520, help_text="an alias such as models:/churn@champion, instead of model_name"
    )
    may_restart = StrictBool(required=False, help_text="without room for two runs: restart instead of waiting")

    def validate(self, values: dict) -> dict:
        if values.get("model_name") and values.get("follows"):
            raise Refused("give either model_name or follows", field="follows")
        return values


class CanaryStepIn(StrictSerializer):
    percent = StrictInt(min_value=1, max_value=99, help_text="the share of the requests that go to the new model")
    minutes = StrictInt(
        required=False, default=0, min_value=0, max_value=canaries.MAX_MINUTES,
        help_text="until the next step; 0: until another share is set",
    )  # fmt: skip


class CanaryMetricIn(StrictSerializer):
    name = StrictString(max_length=50)
    min = StrictNumber(required=False, allow_null=True, help_text="the move ends when the mean in a step is smaller")
    max = StrictNumber(required=False, allow_null=True, help_text="the move ends when the mean in a step is larger")


class CanaryIn(StrictSerializer):
    """How the application's moves to another model begin. After the last step all requests go to the new model."""

    steps = CanaryStepIn(many=True, max_length=canaries.MAX_STEPS)
    max_errors_percent = StrictInt(
        required=False, allow_null=True, min_value=0, max_value=100,
        help_text="the move ends when a larger share of the new model's requests has failed",
    )  # fmt: skip
    max_p95_ms = StrictInt(
        required=False, allow_null=True, min_value=1, max_value=canaries.MAX_MS,
        help_text="the move ends when the new model's p95 latency is longer, in milliseconds",
    )  # fmt: skip
    sticky = StrictString(
        required=False, max_length=64,
        help_text="a header, such as X-User-Id: requests with the same value go to the same model",
    )  # fmt: skip
    metric = CanaryMetricIn(required=False, allow_null=True, help_text="what callers report of answers")


class CanaryOut(serializers.Serializer):
    steps = CanaryStepIn(many=True)
    max_errors_percent = serializers.IntegerField(required=False)
    max_p95_ms = serializers.IntegerField(required=False)
    sticky = serializers.CharField(required=False)
    metric = CanaryMetricIn(required=False)


class CanaryShareIn(StrictSerializer):
    percent = StrictInt(min_value=0, max_value=100, help_text="100: all requests go to the new model")


class AppRestartIn(StrictSerializer):
    may_restart = StrictBool(required=False, help_text="without room for two runs: restart instead of waiting")


class AppKeyIn(StrictSerializer):
    name = StrictString(help_text="1 to 50 letters, digits and . _ -")
    days = StrictInt(required=False, allow_null=True, default=None, help_text="when it ends; never by default")
    rate = StrictInt(
        required=False, allow_null=True, default=None, help_text="requests per minute; any number by default"
    )
    day_tokens = StrictInt(
        required=False,
        allow_null=True,
        default=None,
        help_text="of a language model: tokens per day in UTC; any number by default",
    )


class AppKeyChangeIn(StrictSerializer):
    days = StrictInt(required=False, allow_null=True, help_text="when it ends, from now on; null for never")
    rate = StrictInt(required=False, allow_null=True, help_text="requests per minute; null for any number")
    day_tokens = StrictInt(required=False, allow_null=True, help_text="tokens per day in UTC; null for any number")


class AppKeyOut(serializers.Serializer):
    name = serializers.CharField()
    by = serializers.CharField(allow_blank=True, help_text="who has made it")
    created = serializers.DateTimeField()
    expires = serializers.DateTimeField(allow_null=True)
    rate = serializers.IntegerField(allow_null=True, help_text="requests per minute; null for any number")
    day_tokens = serializers.IntegerField(allow_null=True, help_text="tokens per day in UTC; null for any number")
    used = serializers.DateTimeField(allow_null=True, help_text="the last use, to within a minute")
    address = serializers.IPAddressField(allow_null=True, help_text="the address of that use")
    requests = serializers.IntegerField(help_text="of the last 30 days")
    prompt_tokens = serializers.IntegerField(help_text="of a language model, in these days")
    completion_tokens = serializers.IntegerField(help_text="of a language model, in these days")


class AppKeyMade(AppKeyOut):
    key = serializers.CharField(help_text="its text, which is not stored and cannot be shown again")


class KeyDayOut(serializers.Serializer):
    day = serializers.DateField(help_text="in UTC")
    requests = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField()
    completion_tokens = serializers.IntegerField()


class AppKeyDetailOut(AppKeyOut):
    days = KeyDayOut(many=True, help_text="the last 30 days, oldest first")


class AppAccessIn(StrictSerializer):
    address_rate = StrictInt(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=request_limits.MAX,
        help_text="of a public application: requests per minute from one address; null for any number",
    )
    origins = serializers.ListField(
        child=StrictString(max_length=300),
        required=False,
        max_length=callers.MAX_ORIGINS,
        help_text="whose pages may read answers, such as https://shop.example; * alone for all",
    )
    body_mib = StrictInt(
        required=False, allow_null=True, min_value=1, max_value=callers.BODY_MIB, help_text="the largest body in MiB"
    )
    answer_s = StrictInt(
        required=False, allow_null=True, min_value=1, help_text="the longest time until an answer in seconds"
    )


class AppRunOut(serializers.Serializer):
    name = serializers.CharField()
    model_name = serializers.CharField()
    ordered = serializers.DateTimeField()
    ready = serializers.DateTimeField(allow_null=True, help_text="when it was up; null if it never was")
    ended = serializers.DateTimeField(allow_null=True)
    outcome = serializers.ChoiceField(choices=AppRun.Outcome.choices, allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    uptime_s = serializers.FloatField(help_text="for how many seconds it was up")


class AppUptimeOut(serializers.Serializer):
    wanted_s = serializers.FloatField(help_text="the seconds of the last day in which it was not stopped")
    up_s = serializers.FloatField(help_text="the seconds of these in which it was up")
    share = serializers.FloatField(allow_null=True, help_text="0 to 1; null if it was stopped all the time")
    failures = serializers.IntegerField(help_text="runs of the last day that failed")


class AppQueueOut(serializers.Serializer):
    position = serializers.IntegerField()
    length = serializers.IntegerField()
    needs = serializers.DictField(child=serializers.FloatField())
    free = serializers.DictField(child=serializers.FloatField())
    missing = serializers.DictField(child=serializers.FloatField())
    reason = serializers.CharField()
    by_limit = serializers.BooleanField(help_text="whether only the user's own limit is exceeded")
    holders = HolderOut(many=True)


class ReportedOut(serializers.Serializer):
    count = serializers.IntegerField()
    mean = serializers.FloatField(allow_null=True)


class ReportsOut(serializers.Serializer):
    """What callers have reported in the present step of a canary."""

    new = ReportedOut(help_text="of the model that the application moves to")
    old = ReportedOut(help_text="of the model that it serves")


class RolloutOut(serializers.Serializer):
    model_name = serializers.CharField(source="model.name")
    phase = serializers.ChoiceField(choices=Rollout.Phase.choices)
    reason = serializers.CharField(allow_blank=True)
    by = serializers.CharField(allow_blank=True, help_text="who has requested it; empty if the alias has moved")
    percent = serializers.IntegerField(allow_null=True, help_text="of a canary: its share of the requests")
    proposed = serializers.IntegerField(allow_null=True, help_text="the share that waits for an approval, if one does")
    reported = serializers.SerializerMethodField(help_text="what callers report; null where the plan has no metric")

    @extend_schema_field(ReportsOut(allow_null=True))
    def get_reported(self, rollout: Rollout) -> dict | None:
        return ReportsOut(found).data if (found := canaries.reported_of(rollout)) else None


class ApprovalIn(StrictSerializer):
    user = NameField(help_text="whose application it is")
    name = NameField()
    run = StrictString(max_length=64, help_text="of the list")
    percent = StrictInt(min_value=1, max_value=100, help_text="of the list")


class ProposalOut(serializers.Serializer):
    """A step of a rollout that waits for an approval."""

    user = serializers.CharField(source="app.user.username")
    name = serializers.CharField(source="app.name")
    serves = serializers.CharField(source="app.model.name", help_text="the model that it serves now")
    model_name = serializers.CharField(source="model.name", help_text="the model that it moves to")
    run = serializers.CharField(source="run_name", help_text="the run of that model")
    now = serializers.IntegerField(source="percent", help_text="the percentage of the requests that goes there now")
    percent = serializers.IntegerField(source="proposed", help_text="the percentage that is to be approved")


class ReplicasOut(serializers.Serializer):
    """How many runs an application may have, and has."""

    min = serializers.IntegerField(source="replicas_min")
    max = serializers.IntegerField(source="replicas_max")
    target = serializers.IntegerField(allow_null=True, help_text="requests at once per replica; null for any number")
    ready = serializers.IntegerField(source="counts.ready", help_text="how many are up")
    starting = serializers.IntegerField(source="counts.starting", help_text="how many start, or wait for resources")
    reason = serializers.CharField(source="counts.reason", allow_blank=True, help_text="why one of them is not up")


class AppOut(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField(allow_blank=True, help_text="what pages call it; empty for its name")
    user = serializers.CharField(source="user.username")
    tenant = serializers.CharField(source="tenant.name")
    gpu = serializers.IntegerField()
    gpu_type = serializers.CharField(allow_blank=True, help_text="the type of its GPUs; empty: any")
    cpu = serializers.FloatField()
    ram = serializers.IntegerField()
    model_name = serializers.CharField(source="model.name")
    port = serializers.IntegerField()
    state = serializers.ChoiceField(choices=State.choices)
    public = serializers.BooleanField()
    address_rate = serializers.IntegerField(
        allow_null=True, help_text="requests per minute from one address; null for any number"
    )
    origins = serializers.ListField(child=serializers.CharField(), help_text="whose pages may read answers")
    body_mib = serializers.IntegerField(allow_null=True, help_text="the largest body; null for the platform's limit")
    answer_s = serializers.IntegerField(allow_null=True, help_text="until an answer; null for the platform's limit")
    reason = serializers.CharField(allow_blank=True)
    failures = serializers.IntegerField()
    created = serializers.DateTimeField()
    trashed = serializers.DateTimeField(allow_null=True, help_text="since when it is in the trash")
    stopped = serializers.BooleanField(help_text="whether it is in error because it was stopped")
    queued = serializers.SerializerMethodField(help_text="whether it is in creating and waits for free resources")
    ready_since = serializers.DateTimeField(allow_null=True)
    environment = serializers.CharField(allow_blank=True, help_text="the named environment that it is served with")
    follows = serializers.CharField(allow_blank=True, help_text="the alias that it follows; empty without one")
    may_restart = serializers.BooleanField(
        help_text="whether it restarts, instead of waiting, when the alias moves and there is no room for two runs"
    )
    rollout = RolloutOut(default=None, allow_null=True, help_text="its move to another model, while there is one")
    canary = serializers.SerializerMethodField(help_text="how its moves begin; null for at once")
    replicas = ReplicasOut(source="*")
    asleep = serializers.BooleanField(help_text="whether it is ready without a run: the next request waits for it")
    url = serializers.SerializerMethodField(help_text="its address at the application gateway")

    def get_url(self, app: Application) -> str:
        return f"{app_address(self.context['request'])}/{app.user.username}/{app.name}"

    @extend_schema_field(CanaryOut(allow_null=True))
    def get_canary(self, app: Application) -> dict | None:
        return app.canary or None

    def get_queued(self, app: Application) -> bool:
        return app.shown_state == "queued"
