"""The bodies of the REST calls for runs, projects and views."""

from __future__ import annotations

import math

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs import states
from jobs.models import COLOURS
from jobs.serializers import GroupField, JobOut, NotesField, PriorityField, ProjectField, StrictList, TagsField
from jobs.summaries import labels
from kernel.errors import Refused
from kernel.fields import (
    Invalid,
    NameField,
    PatternField,
    StrictBool,
    StrictChoice,
    StrictInt,
    StrictSerializer,
    StrictString,
    TitleField,
)  # fmt: skip
from kernel.sanitize import UNSTORABLE
from tracking.runs import board

NUMBER = {"oneOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]}
WHOLE = {"type": "integer"}
SUMMARY = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {"last": NUMBER, "min": NUMBER, "max": NUMBER, "count": WHOLE, "step": WHOLE},
    },
}


def json_number(value: float) -> float | str:
    """Return the number; NaN and infinity, which JSON does not have, as text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class RunOut(JobOut):
    """A run: a job with its arguments and the summaries of its metrics by name."""

    project_title = serializers.CharField(source="project.title", default="", allow_blank=True)
    params = serializers.SerializerMethodField(help_text="arguments by name")
    metrics = serializers.SerializerMethodField(help_text="last, lowest and highest value of each metric")

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_params(self, job) -> dict:
        return {name: param.text for name, param in sorted(job.row.params.items())}

    @extend_schema_field(SUMMARY)
    def get_metrics(self, job) -> dict:
        return {
            name: {
                **{field: json_number(getattr(metric, field)) for field in ("last", "min", "max")},
                "count": metric.count,
                "step": metric.step,
            }
            for name, metric in sorted(job.row.metrics.items())
        }


class RunsOut(serializers.Serializer):
    """A page of runs. `next` is the `after` of the next page, empty on the last one."""

    runs = RunOut(many=True)
    total = serializers.IntegerField(help_text="runs that match, on all pages")
    next = serializers.CharField(allow_blank=True)


class Selection(StrictSerializer):
    """The runs that an action is about: `jobs` by name, or all that match `filter`, `state` and `project`."""

    jobs = StrictList(child=NameField(), required=False, max_length=1000)
    filter = StrictString(required=False, allow_blank=True, max_length=4000, help_text="an expression")
    state = StrictChoice(choices=list(states.CONDITIONS), required=False)
    project = ProjectField(required=False, help_text="name of a project")

    def validate(self, values: dict) -> dict:
        if ("jobs" in values) == ("filter" in values):
            raise Refused("specify either jobs or filter")
        return values


class TagIn(Selection):
    add = TagsField(required=False, help_text="tags to set")
    remove = StrictList(child=StrictString(max_length=labels.MAX_KEY), required=False, max_length=labels.MAX_TAGS)


class MoveIn(Selection):
    to = ProjectField(help_text="name of the project to move them to")


class MarkIn(Selection):
    """`favourite`, `hidden` or both."""

    favourite = StrictBool(required=False)
    hidden = StrictBool(required=False, help_text="not drawn in the charts of its project")

    def validate(self, values: dict) -> dict:
        if not {"favourite", "hidden"} & set(values):
            raise Refused("specify favourite or hidden")
        return super().validate(values)


class DoneOut(serializers.Serializer):
    changed = serializers.IntegerField(help_text="runs that were changed")
    left = serializers.IntegerField(help_text="runs whose state does not allow it")


class RunEditIn(StrictSerializer):
    title = TitleField()
    project = ProjectField(required=False, help_text="name of a project")
    tags = TagsField(required=False)
    notes = NotesField(required=False, allow_blank=True)
    favourite = StrictBool(required=False)
    hidden = StrictBool(required=False, help_text="not drawn in the charts of its project")
    colour = StrictInt(required=False, min_value=0, max_value=COLOURS - 1, help_text="of its lines in charts")
    group = GroupField(required=False, allow_blank=True)
    priority = PriorityField()


@extend_schema_field(
    {
        "type": "object",
        "maxProperties": 1000,
        "additionalProperties": {"type": "string", "enum": ["min", "max"]},
    }
)
class GoalsField(serializers.Field):
    """Which direction of a metric is better: its name with min or max."""

    def to_internal_value(self, data):
        if not isinstance(data, dict) or len(data) > 1000:
            raise Invalid("must be an object of at most 1000 metrics")
        for name, direction in data.items():
            if not 1 <= len(name) <= 250 or UNSTORABLE.search(name):
                raise Invalid("the name of a metric has 1 to %(limit)s characters", limit=250)
            if direction not in ("min", "max"):
                raise Invalid("%(name)s must be min or max", name=name[:100])
        return data

    def to_representation(self, value):
        return value


@extend_schema_field(board.schema())
class BoardField(serializers.Field):
    """The panels of a project's board, in their order (tracking.runs.board)."""

    def to_internal_value(self, data):
        try:
            return board.checked(data)
        except Refused as refused:
            raise Invalid(refused.problem)

    def to_representation(self, value):
        return value


class ViewNameField(PatternField):
    check = staticmethod(labels.view_name)
    pattern = rf"^{labels.EDGE}({labels.INSIDE}{{0,{labels.MAX_VIEW - 2}}}{labels.EDGE})?$"


class ProjectIn(StrictSerializer):
    name = ProjectField()
    title = TitleField()
    readme = NotesField(required=False, allow_blank=True, help_text="Markdown")
    board = BoardField(required=False)
    goals = GoalsField(required=False)
    tags = TagsField(required=False)


class ProjectEditIn(ProjectIn):
    name = ProjectField(required=False)


class ProjectOut(serializers.Serializer):
    id = serializers.IntegerField()
    name = serializers.CharField()
    title = serializers.CharField(allow_blank=True, help_text="what pages call it; empty for its name")
    user = serializers.CharField(source="user.username")
    default = serializers.BooleanField()
    readme = serializers.CharField(allow_blank=True)
    board = BoardField()
    goals = GoalsField()
    tags = TagsField()
    created = serializers.DateTimeField()
    updated = serializers.DateTimeField()
    trashed = serializers.DateTimeField(allow_null=True)


class ViewIn(StrictSerializer):
    name = ViewNameField()
    query = NotesField(allow_blank=True, max_length=8000, help_text="the query of a table's address")
    project = ProjectField(required=False, help_text="name of the project whose runs it shows; default: all runs")


class ViewOut(serializers.Serializer):
    id = serializers.IntegerField()
    name = serializers.CharField()
    query = serializers.CharField(allow_blank=True)
    project = serializers.CharField(source="project.name", default=None, allow_null=True)
    created = serializers.DateTimeField()
