"""What the REST call `points` answers (tracking.metrics.points)."""

from __future__ import annotations

from rest_framework import serializers

from .serializers import NOT_FINITE, NumberOut


class FirstBadOut(serializers.Serializer):
    step = serializers.IntegerField()
    attempt = serializers.IntegerField()
    value = serializers.ChoiceField(choices=list(NOT_FINITE))


class AfterOut(serializers.Serializer):
    metrics = serializers.IntegerField()
    values = serializers.IntegerField()


class Column(serializers.ListField):
    """A list of numbers, passed on as it is: a series has thousands."""

    def to_representation(self, data):
        return data


def _column(words: str, **options) -> Column:
    return Column(child=serializers.FloatField(**options), help_text=words)


class PointsOut(serializers.Serializer):
    """One series over a range. The columns have one entry for each bucket: some consecutive points of one attempt."""

    name = serializers.CharField()
    count = serializers.IntegerField(help_text="points of the whole series, as are min, max, last and first_bad")
    min = serializers.FloatField(allow_null=True, help_text="of the finite values")
    max = serializers.FloatField(allow_null=True)
    last = NumberOut(allow_null=True)
    last_step = serializers.IntegerField(allow_null=True)
    first_bad = FirstBadOut(allow_null=True, help_text="the first value that is not finite")
    bucket = serializers.IntegerField(help_text="approximate number of points in a bucket; 1: all points are returned")
    step = Column(child=serializers.IntegerField(), help_text="of each bucket's first point")
    time = _column("seconds since 1970")
    attempt = Column(child=serializers.IntegerField())
    value = _column("the mean of the finite values; null where there is none", allow_null=True)
    least = _column("empty where each bucket is one point", allow_null=True)
    greatest = _column("empty where each bucket is one point", allow_null=True)
    bad = Column(
        child=serializers.ListField(child=serializers.FloatField()),
        help_text="buckets with values that are not finite: "
        "[step of the first, time, attempt, number of NaN, of Infinity, of -Infinity]",
    )
    after = AfterOut(help_text="the job's last rows, after which a websocket continues")
