"""What the REST calls of waiting and failed jobs answer and accept."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.code.fields import MAX_BYTES, EnvField
from jobs.models import Action
from jobs.packages.fields import RequirementsField
from jobs.packages.named.serializers import EnvironmentField
from jobs.serializers import (
    GpuTypeField,
    ImageField,
    OutputField,
    PreemptibleField,
    PriorityField,
    StrictList,
    TimeoutField,
)
from kernel.fields import (
    DatasetNameField,
    NameField,
    StrictChoice,
    StrictInt,
    StrictSerializer,
    StrictString,
    TitleField,
)
from kernel.resource_fields import CpuField, GpuField, RamField
from resources.models import Network

AMOUNTS = {"type": "object", "additionalProperties": {"type": "number"}}


@extend_schema_field({**AMOUNTS, "description": "amounts by kind: gpu, cpu, ram (MiB)"})
class AmountsField(serializers.Field):
    """Amounts by kind."""

    def to_representation(self, value):
        return value


@extend_schema_field({"type": "object", "additionalProperties": True})
class FactsField(serializers.Field):
    """What a rule has found, by name."""

    def to_representation(self, value):
        return value


class AheadOut(serializers.Serializer):
    own = serializers.ListField(child=serializers.CharField(), help_text="the user's own jobs that come first")
    others = serializers.IntegerField(help_text="number of other users' jobs that come first")
    named = serializers.ListField(child=serializers.CharField(), help_text="their names, for administrators")


class BlockerOut(serializers.Serializer):
    """The first job in line, when it is another one; `user` and `name` are empty for another user's."""

    user = serializers.CharField(allow_blank=True)
    name = serializers.CharField(allow_blank=True)
    needs = AmountsField()
    missing = AmountsField()


class HolderOut(serializers.Serializer):
    """An object that uses the missing resources. With an empty name, a total of `count` objects of other users."""

    user = serializers.CharField(allow_blank=True)
    kind = serializers.CharField(allow_blank=True)
    name = serializers.CharField(allow_blank=True)
    count = serializers.IntegerField()
    gpu = serializers.IntegerField()
    cpu = serializers.FloatField()
    ram = serializers.IntegerField()
    ends = serializers.DateTimeField(allow_null=True)


class StartsOut(serializers.Serializer):
    sure = serializers.ChoiceField(choices=["good", "rough", "unknown"])
    earliest = serializers.DateTimeField(allow_null=True)
    likely = serializers.DateTimeField(allow_null=True)
    latest = serializers.DateTimeField(allow_null=True)
    basis = serializers.CharField()


class QueueOut(serializers.Serializer):
    """Why a queued job waits."""

    position = serializers.IntegerField(help_text="1 is next")
    length = serializers.IntegerField(help_text="jobs in this queue")
    reason = serializers.CharField()
    by_limit = serializers.BooleanField(help_text="the user's own limit is in the way, not the tenant's capacity")
    needs = AmountsField()
    free = AmountsField(help_text="what the first job in line could have now")
    missing = AmountsField(help_text="by how much the first job's request exceeds that")
    ahead = AheadOut()
    blocker = BlockerOut(allow_null=True)
    holders = HolderOut(many=True)
    largest = AmountsField(allow_null=True, help_text="the largest request in this job's place that would start now")
    starts = StartsOut()


class DiagnosisOut(serializers.Serializer):
    """Why a job failed."""

    title = serializers.CharField()
    explanation = serializers.CharField(allow_blank=True)
    rule = serializers.CharField(allow_blank=True, help_text="key of the rule; empty when none matched")
    error = serializers.CharField(allow_blank=True, help_text="class of the last exception")
    exception = serializers.CharField(allow_blank=True, help_text="text of the last exception alone")
    file = serializers.CharField(allow_blank=True, help_text="where it came from, relative to the scripts")
    line = serializers.IntegerField(allow_null=True)
    code = serializers.CharField(allow_blank=True)
    attempt = serializers.IntegerField()
    action = serializers.ChoiceField(choices=Action.choices, allow_blank=True, help_text="what helps")
    facts = FactsField()
    at = serializers.DateTimeField()


class RerunIn(StrictSerializer):
    """What the new job has in place of the ended one's; everything else is taken over, and a free name is found."""

    name = NameField(required=False)
    title = TitleField()
    gpu = GpuField()
    gpu_type = GpuTypeField()
    cpu = CpuField()
    ram = RamField()
    datasets = StrictList(child=DatasetNameField(), required=False, max_length=100)
    args = StrictList(child=StrictString(allow_blank=True, max_length=MAX_BYTES), required=False, max_length=100)
    env = EnvField(required=False)
    retries = StrictInt(required=False, min_value=0, max_value=10)
    timeout = TimeoutField()
    priority = PriorityField()
    preemptible = PreemptibleField()
    network = StrictChoice(choices=Network.values, required=False)
    requirements = RequirementsField()
    environment = EnvironmentField()
    image = ImageField()
    output_uri = OutputField()
