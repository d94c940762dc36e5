"""What the resource manager's REST calls accept and answer."""

from __future__ import annotations

from rest_framework import serializers

from kernel.fields import (
    Invalid,
    NameField,
    RequestIdField,
    StrictBool,
    StrictChoice,
    StrictInt,
    StrictNumber,
    StrictSerializer,
    StrictString,
)
from kernel.names import REQUEST_ID
from kernel.resource_fields import CpuField, GpuField, RamField

from .models import MAX_IDLE_MINUTES, PLATFORM_ID, Applier, Network, RequestType, is_platform_id
from .policies import MAX_DAYS, MAX_WORKSPACE_HOURS

BIG = 2**63 - 1
WORK = ("job", "application", "dataset", "sweep", "schedule", "pipelinerun")  # the kinds of resources.work


class OutsideIdField(RequestIdField):
    """An id that is not one of the platform's own objects (`job:1`): those are settled by their objects alone."""

    pattern = REQUEST_ID.replace("^", rf"^(?!{PLATFORM_ID.pattern}$)", 1)

    def to_internal_value(self, data):
        value = super().to_internal_value(data)
        if is_platform_id(value):
            raise Invalid("is reserved for an object of the platform; choose another id")
        return value


class TryIn(StrictSerializer):
    id = OutsideIdField()
    applier = StrictChoice(choices=Applier.values)
    request_type = StrictChoice(choices=RequestType.values)
    tenant = NameField(required=False)
    gpu = GpuField()
    cpu = CpuField()
    ram = RamField()
    rom = StrictInt(required=False, min_value=0, max_value=BIG, help_text="bytes")


class SettleIn(StrictSerializer):
    id = OutsideIdField()
    applier = StrictChoice(choices=Applier.values)


class GpuTypeOut(serializers.Serializer):
    name = serializers.CharField(help_text="what `gpu_type` takes")
    gpus = serializers.IntegerField(help_text="how many there are, in use or not")
    products = serializers.ListField(child=serializers.CharField(), help_text="the products that the name means")


class CapacityIn(StrictSerializer):
    cpu = StrictNumber(required=False, min_value=0, max_value=1_000_000)
    gpu = StrictInt(required=False, min_value=0, max_value=1_000_000)
    ram = StrictInt(required=False, min_value=0, max_value=BIG, help_text="MiB")
    rom = StrictInt(required=False, min_value=0, max_value=BIG, help_text="bytes")
    network = StrictChoice(
        choices=["", *Network.values], required=False, help_text="what jobs may reach at most; empty: MLP_RUN_NETWORK"
    )
    idle_gpu_minutes = StrictInt(
        required=False, allow_null=True, min_value=1, max_value=MAX_IDLE_MINUTES,
        help_text="a job whose GPUs have been idle for so long is warned, then stopped; null: never",
    )  # fmt: skip
    idle_gpu_percent = StrictInt(required=False, min_value=1, max_value=100, help_text="idle is less than this")
    idle_cpu_minutes = StrictInt(
        required=False, allow_null=True, min_value=1, max_value=MAX_IDLE_MINUTES,
        help_text="the same for the CPU of jobs without a GPU",
    )  # fmt: skip
    idle_cpu_percent = StrictInt(
        required=False, min_value=1, max_value=100, help_text="idle is less than this share of the requested CPU"
    )
    idle_grace_minutes = StrictInt(
        required=False, min_value=0, max_value=MAX_IDLE_MINUTES, help_text="from the warning to the stop"
    )
    trash_days = StrictInt(
        required=False, allow_null=True, min_value=0, max_value=MAX_DAYS,
        help_text="after so many days in the trash things are deleted; null: MLP_TRASH_DAYS",
    )  # fmt: skip
    log_days = StrictInt(
        required=False, allow_null=True, min_value=1, max_value=MAX_DAYS,
        help_text="so many days after a job's end its log is removed; null: never",
    )  # fmt: skip
    metrics_days = StrictInt(
        required=False, allow_null=True, min_value=1, max_value=MAX_DAYS, help_text="the same for its metrics"
    )
    output_days = StrictInt(
        required=False, allow_null=True, min_value=1, max_value=MAX_DAYS, help_text="the same for its output"
    )
    lends = StrictBool(required=False, help_text="lends idle resources to preemptible jobs of other tenants")
    cpu_borrow_limit = StrictNumber(required=False, min_value=0, max_value=1_000_000, help_text="0: borrows none")
    gpu_borrow_limit = StrictInt(required=False, min_value=0, max_value=1_000_000, help_text="0: borrows none")
    ram_borrow_limit = StrictInt(required=False, min_value=0, max_value=BIG, help_text="MiB; 0: borrows none")
    log_model = StrictBool(
        required=False, help_text="whether log lines of those who are only in this tenant have a model of their own"
    )
    allows_workspaces = StrictBool(required=False, help_text="whether members may have workspaces")
    workspace_idle_minutes = StrictInt(
        required=False, allow_null=True, min_value=5, max_value=MAX_IDLE_MINUTES,
        help_text="idle for so long, a workspace is stopped; null: MLP_WORKSPACE_IDLE_MINUTES, which is the maximum",
    )  # fmt: skip
    workspace_hours = StrictInt(
        required=False, allow_null=True, min_value=1, max_value=MAX_WORKSPACE_HOURS,
        help_text="a workspace is stopped after so many hours; null: MLP_WORKSPACE_HOURS, which is the maximum",
    )  # fmt: skip
    allows_attach = StrictBool(required=False, help_text="whether members may attach to their running jobs")
    approves_rollouts = StrictBool(
        required=False, help_text="whether each step of a move to another model needs an administrator's approval"
    )
    record_days = StrictInt(
        required=False, allow_null=True, min_value=0, max_value=MAX_DAYS,
        help_text="the most days for which requests to applications are recorded; 0: not at all, null: any number",
    )  # fmt: skip


class TenantIn(StrictSerializer):
    """What is not named is 0: such a tenant can borrow, or has members who only look."""

    name = NameField()
    cpu = StrictNumber(required=False, min_value=0, max_value=1_000_000)
    gpu = StrictInt(required=False, min_value=0, max_value=1_000_000)
    ram = StrictInt(required=False, min_value=0, max_value=BIG, help_text="MiB")
    rom = StrictInt(required=False, min_value=0, max_value=BIG, help_text="bytes")


class WorkIn(StrictSerializer):
    kind = StrictChoice(choices=WORK)
    user = NameField(help_text="whose it is")
    name = StrictString(max_length=200, help_text="a run of a pipeline is `pipeline/number`")


class WorkOut(serializers.Serializer):
    kind = serializers.ChoiceField(choices=WORK)
    user = serializers.CharField()
    name = serializers.CharField()
    state = serializers.CharField()
    since = serializers.DateTimeField(help_text="when it was created")


class TenantOut(serializers.Serializer):
    name = serializers.CharField()
    cpu = serializers.FloatField()
    gpu = serializers.IntegerField()
    ram = serializers.IntegerField()
    rom = serializers.IntegerField()
    cpu_inuse = serializers.FloatField()
    gpu_inuse = serializers.IntegerField()
    ram_inuse = serializers.IntegerField()
    rom_inuse = serializers.IntegerField()
    source = serializers.CharField()
    network = serializers.ChoiceField(choices=Network.choices, source="network_policy")
    idle_gpu_minutes = serializers.IntegerField(allow_null=True, help_text="null: GPUs may be idle")
    idle_gpu_percent = serializers.IntegerField()
    idle_cpu_minutes = serializers.IntegerField(allow_null=True, help_text="null: jobs without a GPU may be idle")
    idle_cpu_percent = serializers.IntegerField()
    idle_grace_minutes = serializers.IntegerField()
    trash_days = serializers.IntegerField(allow_null=True, help_text="null: MLP_TRASH_DAYS")
    log_days = serializers.IntegerField(allow_null=True, help_text="null: logs of ended jobs are kept")
    metrics_days = serializers.IntegerField(allow_null=True)
    output_days = serializers.IntegerField(allow_null=True)
    lends = serializers.BooleanField()
    cpu_borrow_limit = serializers.FloatField()
    gpu_borrow_limit = serializers.IntegerField()
    ram_borrow_limit = serializers.IntegerField()
    cpu_borrowed = serializers.FloatField(help_text="in use beyond the tenant's own capacity")
    gpu_borrowed = serializers.IntegerField()
    ram_borrowed = serializers.IntegerField()
    cpu_lent = serializers.FloatField(help_text="in use by other tenants")
    gpu_lent = serializers.IntegerField()
    ram_lent = serializers.IntegerField()
    log_model = serializers.BooleanField(help_text="whether the tenant has a log model of its own")
    allows_workspaces = serializers.BooleanField()
    workspace_idle_minutes = serializers.IntegerField(allow_null=True, help_text="null: MLP_WORKSPACE_IDLE_MINUTES")
    workspace_hours = serializers.IntegerField(allow_null=True, help_text="null: MLP_WORKSPACE_HOURS")
    allows_attach = serializers.BooleanField()
    approves_rollouts = serializers.BooleanField(help_text="whether moves to another model need an approval")
    record_days = serializers.IntegerField(
        allow_null=True, help_text="the most days for which requests to applications are recorded; null: any number"
    )


class LimitIn(StrictSerializer):
    """Limits that are not given stay unchanged; null removes a limit."""

    cpu = StrictNumber(required=False, allow_null=True, min_value=0, max_value=1_000_000)
    gpu = StrictInt(required=False, allow_null=True, min_value=0, max_value=1_000_000)
    ram = StrictInt(required=False, allow_null=True, min_value=0, max_value=BIG, help_text="MiB")
    rom = StrictInt(required=False, allow_null=True, min_value=0, max_value=BIG, help_text="bytes")
    database = StrictInt(required=False, allow_null=True, min_value=0, max_value=2**31 - 1, help_text="MiB")
    outputs = StrictInt(required=False, allow_null=True, min_value=0, max_value=2**31 - 1, help_text="MiB")


class LimitOut(serializers.Serializer):
    """User `*`: all users without a limit of their own. Null: no limit."""

    tenant = serializers.CharField(source="tenant.name")
    user = serializers.CharField(source="who")
    cpu = serializers.FloatField(allow_null=True)
    gpu = serializers.IntegerField(allow_null=True)
    ram = serializers.IntegerField(allow_null=True)
    rom = serializers.IntegerField(allow_null=True)
    database = serializers.IntegerField(allow_null=True, help_text="MiB, below `MLP_DATABASE_LIMIT_MIB`")
    outputs = serializers.IntegerField(allow_null=True, help_text="MiB, below `MLP_OUTPUTS_LIMIT_MIB`")


class LayerOut(serializers.Serializer):
    """A layer of the stacked chart: one value per entry of `times`."""

    name = serializers.CharField(allow_blank=True)
    cpu = serializers.ListField(child=serializers.FloatField())
    gpu = serializers.ListField(child=serializers.IntegerField())
    ram = serializers.ListField(child=serializers.IntegerField())
    rom = serializers.ListField(child=serializers.IntegerField())


class UsageOut(serializers.Serializer):
    tenant = serializers.CharField()
    by = serializers.ChoiceField(choices=["owner", "kind"])
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step_s = serializers.IntegerField()
    times = serializers.ListField(child=serializers.DateTimeField())
    layers = LayerOut(many=True)
