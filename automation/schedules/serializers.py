"""What the REST calls of schedules accept and answer, and what a schedule's YAML file has."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from automation.models import FiringState, ScheduleState
from automation.pipelines.serializers import PipelineRunIn
from automation.spec import SpecIn
from automation.sweeps.serializers import AnyObject, SweepIn
from jobs.serializers import NotesField
from kernel.errors import Refused
from kernel.fields import NameField, StrictChoice, StrictSerializer, StrictString, TitleField

from . import events, times
from .lifecycle import KINDS

OVERLAPS = ("skip", "queue", "cancel", "allow")
CATCH_UPS = ("latest", "none", "all")
CODES = ("latest", "kept")


class SweepSpecIn(SweepIn):
    """A sweep without a name."""

    name = None


class PipelineSpecIn(PipelineRunIn):
    """A run of a pipeline."""

    name = NameField(help_text="of the pipeline")


class EventIn(StrictSerializer):
    on = StrictChoice(choices=list(events.EVENTS))
    name = StrictString(
        required=False, max_length=256, help_text="of the dataset, job, registered model or alert rule; default: any"
    )

    def validate(self, values):
        if values["on"] in events.NEEDS_NAME and not values.get("name"):
            raise Refused("requires the name of a job", field="event.name")
        return values


class TimingIn(StrictSerializer):
    cron = StrictString(
        required=False,
        max_length=100,
        help_text="minute, hour, day, month and weekday, as in `30 6 * * 1-5`; or @daily",
    )
    time_zone = StrictString(
        required=False, max_length=64, help_text="an IANA name such as Europe/Berlin; default: UTC"
    )
    event = EventIn(required=False, help_text="instead of cron: fire when this happens")

    def validate(self, values):
        if "cron" in values and "event" in values:
            raise Refused("give either cron or event", field="cron")
        if "time_zone" in values:
            times.zone_of(values["time_zone"])
        if "cron" in values:
            values["cron"] = times.need_cron(values["cron"], values.get("time_zone", "UTC"))
        return values


class ChangeIn(TimingIn):
    notes = NotesField(required=False, allow_blank=True, help_text="Markdown")
    overlap = StrictChoice(
        choices=list(OVERLAPS), required=False, help_text="what to do while the last one still runs; default: skip"
    )
    catch_up = StrictChoice(
        choices=list(CATCH_UPS), required=False,
        help_text="for which of the times that were missed to submit later; default: latest",
    )  # fmt: skip


class ScheduleIn(ChangeIn):
    name = NameField()
    title = TitleField()
    job = SpecIn(required=False, help_text="what is submitted: a job without a name")
    sweep = SweepSpecIn(required=False, help_text="instead of a job: a sweep without a name")
    pipeline = PipelineSpecIn(required=False, help_text="instead of a job: a run of a pipeline")
    code = StrictChoice(
        choices=list(CODES), default="latest", help_text="latest: the script as it is when it fires; kept: as it is now"
    )

    def validate(self, values):
        values = super().validate(values)
        if sum(kind in values for kind in KINDS) != 1:
            raise Refused("give either job, sweep or pipeline", field="job")
        if "cron" not in values and "event" not in values:
            raise Refused("give either cron or event", field="cron")
        return values


class PreviewIn(StrictSerializer):
    cron = StrictString(max_length=100)
    time_zone = StrictString(default="UTC", max_length=64)

    def validate(self, values):
        times.zone_of(values["time_zone"])
        return {**values, "cron": times.need_cron(values["cron"], values["time_zone"])}


class PreviewOut(serializers.Serializer):
    times = serializers.ListField(child=serializers.DateTimeField(), help_text="the next five")


class FiringOut(serializers.Serializer):
    state = serializers.ChoiceField(choices=FiringState.choices)
    reason = serializers.CharField(allow_blank=True)
    planned = serializers.DateTimeField()
    at = serializers.DateTimeField()
    made = serializers.CharField(allow_blank=True, help_text="name of the job or sweep that was submitted")


@extend_schema_field({"type": "object", "additionalProperties": True})
class BodyField(AnyObject):
    pass


class ScheduleOut(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField(allow_blank=True, help_text="what pages call it; empty for its name")
    user = serializers.CharField(source="user.username")
    state = serializers.ChoiceField(choices=ScheduleState.choices)
    reason = serializers.CharField(allow_blank=True)
    notes = serializers.CharField(allow_blank=True)
    kind = serializers.ChoiceField(choices=KINDS)
    job = BodyField(source="shown_job", allow_null=True)
    sweep = BodyField(source="shown_sweep", allow_null=True)
    pipeline = BodyField(source="shown_pipeline", allow_null=True)
    code = serializers.ChoiceField(choices=CODES, source="shown_code")
    cron = serializers.CharField(allow_blank=True)
    time_zone = serializers.CharField()
    event = AnyObject(help_text="{} of one with cron")
    overlap = serializers.ChoiceField(choices=OVERLAPS)
    catch_up = serializers.ChoiceField(choices=CATCH_UPS)
    next_times = serializers.ListField(child=serializers.DateTimeField(), help_text="the next five")
    submitted = serializers.IntegerField()
    created = serializers.DateTimeField()
