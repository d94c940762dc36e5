"""What the REST calls of sweeps accept and answer, and what a sweep's YAML file has."""

from __future__ import annotations

import re

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from automation.models import SweepState, TrialState
from automation.spec import SpecIn
from jobs.serializers import NotesField
from kernel.errors import Refused
from kernel.fields import (
    Invalid,
    NameField,
    StrictChoice,
    StrictInt,
    StrictNumber,
    StrictSerializer,
    StrictString,
    TitleField,
)
from kernel.outcomes import Outcome
from tracking.metrics.serializers import SERIES_NAME, NumberOut

from . import options, space

PASS_AS = ("options", "pairs", "environment")
STATISTICS = ("last", "best", "min", "max")
MAX_TRIALS = 10_000
MAX_PARALLEL = 100
MAX_OBJECTIVES = 4
SCALAR = {"oneOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}


@extend_schema_field({"type": "object", "additionalProperties": {"type": "object"}, "minProperties": 1})
class SpaceField(serializers.Field):
    """The search space (automation.sweeps.space)."""

    def to_internal_value(self, data):
        return space.checked(data)

    def to_representation(self, value):
        return value


class OptionsField(serializers.Field):
    """A sampler or a pruner: its name, or an object with its options."""

    def __init__(self, known: dict, default_kind: str, **kwargs):
        super().__init__(**kwargs)
        self.known, self.default_kind = known, default_kind

    def to_internal_value(self, data):
        return options.checked(self.field_name, data, self.known, self.default_kind)

    def to_representation(self, value):
        return value


def _one_of(known: dict) -> dict:
    kinds = sorted(known)
    typed = {"type": "object", "properties": {"type": {"type": "string", "enum": kinds}}}
    return {"oneOf": [{"type": "string", "enum": kinds}, typed]}


@extend_schema_field(_one_of(options.SAMPLERS))
class SamplerField(OptionsField):
    pass


@extend_schema_field(_one_of(options.PRUNERS))
class PrunerField(OptionsField):
    pass


@extend_schema_field({"type": "object", "additionalProperties": SCALAR})
class ParamsField(serializers.Field):
    """Values by parameter; the sweep's space checks them."""

    def to_internal_value(self, data):
        if not isinstance(data, dict):
            raise Invalid("must be an object of parameters and their values")
        return data

    def to_representation(self, value):
        return value


class MetricField(StrictString):
    """The name of a metric that the script reports, as in its reports."""

    def to_internal_value(self, data):
        value = super().to_internal_value(data)
        if not re.fullmatch(SERIES_NAME, value) or value in ("epoch", "progress"):
            raise Invalid("must be the name of a metric that the script reports, such as loss")
        return value


class ObjectiveIn(StrictSerializer):
    metric = MetricField(help_text="name of a metric that the script reports")
    direction = StrictChoice(choices=["minimize", "maximize"])
    statistic = StrictChoice(
        choices=list(STATISTICS), default="last", help_text="which of its values counts; best: by the direction"
    )


class StopIn(StrictSerializer):
    """When to end before all trials are made."""

    hours = StrictNumber(required=False, min_value=0.0001, max_value=100_000, help_text="time, without pauses")
    gpu_hours = StrictNumber(required=False, min_value=0.0001, max_value=1_000_000, help_text="of all trials together")
    target = StrictNumber(required=False, help_text="the value that is good enough; with one objective only")
    patience = StrictInt(
        required=False, min_value=1, max_value=MAX_TRIALS, help_text="trials without a new best; one objective only"
    )
    failures = StrictInt(
        default=5, min_value=1, max_value=MAX_TRIALS, help_text="the sweep fails when so many in a row have failed"
    )


class SweepIn(StrictSerializer):
    name = NameField()
    title = TitleField()
    notes = NotesField(required=False, allow_blank=True, help_text="Markdown")
    job = SpecIn(help_text="what each trial submits: a job without a name")
    space = SpaceField(help_text="parameters by name, each with type, range and condition")
    pass_as = StrictChoice(
        choices=list(PASS_AS),
        default="options",
        help_text="how the script gets its values: --lr=0.1, lr=0.1, or as environment variables",
    )
    objective = ObjectiveIn(required=False)
    objectives = ObjectiveIn(many=True, required=False, help_text="several instead of one: the Pareto front is sought")
    sampler = SamplerField(options.SAMPLERS, "tpe", required=False)
    pruner = PrunerField(options.PRUNERS, "none", required=False)
    trials = StrictInt(required=False, min_value=1, max_value=MAX_TRIALS, help_text="default: 20; of a grid: all")
    parallel = StrictInt(default=2, min_value=1, max_value=MAX_PARALLEL, help_text="jobs at the same time")
    stop = StopIn(required=False)

    def validate(self, values):
        given = values.pop("objective", None)
        many = values.get("objectives", [])
        if (given is None) == (not many):
            raise Refused("give either objective or objectives", field="objective")
        values["objectives"] = objectives = [given] if given else many
        if len(objectives) > MAX_OBJECTIVES:
            raise Refused("must be at most %(most)s", field="objectives", most=MAX_OBJECTIVES)
        metrics = [each["metric"] for each in objectives]
        if len(set(metrics)) < len(metrics):
            raise Refused("each must have a metric of its own", field="objectives")
        default = "tpe" if len(objectives) == 1 else "nsga2"
        values.setdefault("sampler", options.checked("sampler", None, options.SAMPLERS, default))
        values.setdefault("pruner", options.checked("pruner", None, options.PRUNERS, "none"))
        values.setdefault("stop", dict(StopIn.read({})))
        self._need_together(values)
        return values

    @staticmethod
    def _need_together(values: dict) -> None:
        several = len(values["objectives"]) > 1
        if several and values["sampler"]["type"] in options.SINGLE_ONLY:
            raise Refused("%(name)s takes one objective only", field="sampler", name=values["sampler"]["type"])
        if several and values["pruner"]["type"] != "none":
            raise Refused("trials can be ended early with one objective only", field="pruner")
        for rule in ("target", "patience"):
            if several and rule in values["stop"]:
                raise Refused("is possible with one objective only", field=f"stop.{rule}")
        if values["sampler"]["type"] == "grid":
            size = space.grid_size(values["space"])
            values["trials"] = min(size, values.get("trials", size))
            if values["trials"] > MAX_TRIALS:
                raise Refused("must be at most %(most)s", field="trials", most=MAX_TRIALS)
        values.setdefault("trials", 20)
        if values["pass_as"] == "environment":
            for name in values["space"]:
                if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name) or name.startswith("MLP_"):
                    raise Refused("is not the name of an environment variable", field=f"space.{name}")


class ExtendIn(StrictSerializer):
    """What a sweep may get while it exists; what is not given stays."""

    trials = StrictInt(required=False, min_value=1, max_value=MAX_TRIALS, help_text="how many more")
    parallel = StrictInt(required=False, min_value=1, max_value=MAX_PARALLEL)
    stop = StopIn(required=False, help_text="instead of its present rules")


class TrialIn(StrictSerializer):
    params = ParamsField(help_text="values by parameter; those left out are suggested by the sampler")


@extend_schema_field({"type": "array", "items": {"type": "array", "items": {"type": "number"}}})
class StepsField(serializers.Field):
    def to_representation(self, value):
        return value


class TrialOut(serializers.Serializer):
    number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=TrialState.choices)
    reason = serializers.CharField(allow_blank=True)
    params = ParamsField()
    given = serializers.ListField(child=serializers.CharField(), help_text="parameters that a user has chosen")
    values = serializers.ListField(
        child=NumberOut(), allow_null=True, help_text="one for each objective; of a pruned trial the last it reached"
    )
    job = serializers.CharField(source="job.name", default=None, allow_null=True)
    best = serializers.BooleanField(help_text="the best trial, or on the Pareto front")
    created = serializers.DateTimeField()
    started = serializers.DateTimeField(allow_null=True)
    ended = serializers.DateTimeField(allow_null=True)


class CountsOut(serializers.Serializer):
    waiting = serializers.IntegerField()
    running = serializers.IntegerField()
    complete = serializers.IntegerField()
    pruned = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()


@extend_schema_field({"type": "object", "additionalProperties": True})
class AnyObject(serializers.Field):
    def to_representation(self, value):
        return value


class SweepOut(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField(allow_blank=True, help_text="what pages call it; empty for its name")
    user = serializers.CharField(source="user.username")
    state = serializers.ChoiceField(choices=SweepState.choices)
    outcome = serializers.ChoiceField(choices=Outcome.choices, allow_blank=True, help_text="how it has ended")
    reason = serializers.CharField(allow_blank=True)
    notes = serializers.CharField(allow_blank=True)
    job = AnyObject(source="shown_job", help_text="what each trial submits")
    space = SpaceField()
    pass_as = serializers.ChoiceField(choices=PASS_AS)
    objectives = ObjectiveIn(many=True)
    sampler = AnyObject()
    pruner = AnyObject()
    stop = AnyObject()
    trials = serializers.IntegerField(source="trials_wanted")
    parallel = serializers.IntegerField()
    counts = CountsOut(help_text="trials by state")
    best = TrialOut(many=True, source="best_trials", help_text="the best trial, or the Pareto front")
    importance = AnyObject(help_text="for each metric, how much each parameter matters, as shares of 1")
    gpu_hours = serializers.FloatField(source="gpu_hours_used")
    hours = serializers.FloatField(source="hours_used")
    created = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True)
