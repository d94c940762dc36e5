"""What the REST calls of pipelines accept and answer, and what a pipeline's YAML file has."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from automation.models import RunState, StepState
from automation.spec import SpecIn, at
from automation.sweeps.serializers import SCALAR, AnyObject
from jobs.serializers import EntryField, NotesField, StrictList
from kernel.errors import Refused
from kernel.fields import Invalid, NameField, StrictBool, StrictSerializer, StrictString, TitleField
from kernel.outcomes import Outcome

from . import graph


@extend_schema_field({"type": "object", "additionalProperties": SCALAR})
class ParamsField(serializers.Field):
    """Parameters of a pipeline: texts, numbers, true or false by name."""

    def to_internal_value(self, data):
        return graph.need_params(data)

    def to_representation(self, value):
        return value


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class WhenField(serializers.Field):
    """Conditions by step: filter expressions over its job."""

    def to_internal_value(self, data):
        if not isinstance(data, dict) or not all(isinstance(text, str) and len(text) <= 1000 for text in data.values()):
            raise Invalid("must be an object of steps and conditions, such as accuracy > 0.9")
        return data

    def to_representation(self, value):
        return value


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class StepInputsField(serializers.Field):
    """Outputs of other steps by the name of the input."""

    def to_internal_value(self, data):
        return graph.need_inputs(data)

    def to_representation(self, value):
        return value


class StepIn(SpecIn):
    """One step: the fields of a job, and what it needs. With `approve` it has no job, and waits for its owner."""

    entry = EntryField(required=False, help_text="path of the script, relative to .home")
    inputs = StepInputsField(required=False, help_text="outputs of other steps: `DATA: prepare/data`")
    needs = StrictList(child=StrictString(max_length=40), required=False, max_length=200, help_text="steps before it")
    when = WhenField(required=False, help_text="conditions on steps before it: `train: accuracy > 0.9`")
    approve = StrictString(required=False, max_length=1000, help_text="what the owner is asked before it goes on")
    cache = StrictBool(default=True, help_text="take the result of an earlier run when nothing it depends on changed")

    def validate(self, values):
        own = {name: values.pop(name) for name in ("inputs", "needs", "when", "approve", "cache") if name in values}
        if "entry" not in values and "approve" not in own:
            raise Refused("requires an entry, or approve", field="entry")
        if "approve" in own and values:
            raise Refused("an approval has no job", field=next(iter(values)))
        return {**own, **({"job": dict(values)} if values else {})}


@extend_schema_field({"type": "object", "additionalProperties": {"type": "object"}, "minProperties": 1})
class StepsField(serializers.Field):
    """The steps by name."""

    def to_internal_value(self, data):
        if not isinstance(data, dict) or not 1 <= len(data) <= graph.MAX_STEPS:
            raise Refused("must be an object of 1 to %(most)s steps", field="steps", most=graph.MAX_STEPS)
        return {name: at(f"steps.{str(name)[:40]}", lambda step=step: StepIn.read(step)) for name, step in data.items()}

    def to_representation(self, value):
        return value


class PipelineChangeIn(StrictSerializer):
    title = TitleField()
    notes = NotesField(required=False, allow_blank=True, help_text="Markdown")
    params = ParamsField(required=False, help_text="parameters with their defaults: ${name} in args and env")
    steps = StepsField(help_text="steps by name")


class PipelineIn(PipelineChangeIn):
    name = NameField()


class PipelineRunIn(StrictSerializer):
    params = ParamsField(required=False, help_text="instead of the defaults")
    fresh = StrictBool(default=False, help_text="take nothing from earlier runs")


class PipelineOut(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField(allow_blank=True, help_text="what pages call it; empty for its name")
    user = serializers.CharField(source="user.username")
    notes = serializers.CharField(allow_blank=True)
    params = AnyObject()
    steps = AnyObject(source="shown_steps")
    runs = serializers.IntegerField(source="last", help_text="runs so far")
    created = serializers.DateTimeField()
    updated = serializers.DateTimeField()


class PipelineStepOut(serializers.Serializer):
    name = serializers.CharField()
    needs = serializers.ListField(child=serializers.CharField())
    state = serializers.ChoiceField(choices=StepState.choices)
    reason = serializers.CharField(allow_blank=True)
    job = serializers.CharField(source="job.name", default=None, allow_null=True)
    by = serializers.CharField(allow_blank=True, help_text="who approved or rejected it")
    started = serializers.DateTimeField(allow_null=True)
    ended = serializers.DateTimeField(allow_null=True)


class PipelineRunOut(serializers.Serializer):
    pipeline = serializers.CharField(source="pipeline.name")
    number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=RunState.choices)
    outcome = serializers.ChoiceField(choices=Outcome.choices, allow_blank=True, help_text="how it has ended")
    reason = serializers.CharField(allow_blank=True)
    params = AnyObject()
    steps = PipelineStepOut(many=True, source="steps.all")
    created = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True)
