"""What the REST calls of drift accept and answer."""

from __future__ import annotations

from rest_framework import serializers

from kernel.fields import (
    JobDatasetField,
    StrictBool,
    StrictChoice,
    StrictInt,
    StrictNumber,
    StrictSerializer,
    StrictString,
)

from ..models import DriftCheck, DriftWindow
from . import columns, plan


class DriftIn(StrictSerializer):
    """What is not given stays as it was. The reference is a dataset, or a time range of the application's records."""

    on = StrictBool(required=False, default=True, help_text="false: drift is no longer looked for")
    dataset = JobDatasetField(required=False, help_text="what the model was trained on: CSV, TSV or NDJSON; name@2")
    target = StrictString(
        required=False, allow_blank=True, max_length=100, help_text="its column that the model answers; empty: none"
    )
    since = StrictString(required=False, max_length=40, help_text="the first time of a range of records")
    until = StrictString(required=False, max_length=40, help_text="records before this time")
    window = StrictChoice(DriftCheck.Window.values, required=False)
    least = StrictInt(
        required=False, min_value=10, max_value=plan.MAX_LEAST, help_text="windows with fewer records are not compared"
    )
    alpha = StrictNumber(
        required=False, min_value=0.0001, max_value=0.5, help_text="the false discovery rate over all features"
    )
    distance = StrictNumber(
        required=False, min_value=0, max_value=10,
        help_text="smaller distances do not count: in standard deviations for numbers, from 0 to 1 for categories",
    )  # fmt: skip
    share = StrictNumber(
        required=False, min_value=0, max_value=1,
        help_text="the share of the features that has to drift for an alert; 0: one is enough",
    )  # fmt: skip
    kinds = serializers.DictField(
        child=StrictChoice(columns.CHOICES), required=False,
        help_text="kinds of features that are not to be guessed: {\"input.zip\": \"category\", \"output.y\": \"skip\"}",
    )  # fmt: skip


class FeatureOut(serializers.Serializer):
    name = serializers.CharField(allow_blank=True)
    side = serializers.ChoiceField(["input", "output"])
    kind = serializers.ChoiceField(columns.CHOICES)
    why = serializers.CharField(allow_blank=True, help_text="why it is not compared: ids, dates, empty, absent, chosen")


class DriftOut(serializers.ModelSerializer):
    kinds = serializers.DictField(child=serializers.ChoiceField(columns.CHOICES))
    reason = serializers.CharField(source="problem", help_text="why the reference cannot be read")
    features = serializers.SerializerMethodField(help_text="those of the reference, once it is read")

    class Meta:
        model = DriftCheck
        fields = ("on", *plan.SET, "profiled", "reason", "drifting_since", "features")

    def get_features(self, row: DriftCheck) -> list[dict]:
        return FeatureOut(row.profile or [], many=True).data


class DriftWindowOut(serializers.ModelSerializer):
    number = serializers.IntegerField(source="pk")
    records = serializers.IntegerField(source="count")
    share = serializers.FloatField(help_text="the share of the compared features that have drifted")

    class Meta:
        model = DriftWindow
        fields = ("number", "begin", "end", "verdict", "records", "compared", "drifted", "share")


class ComparedOut(FeatureOut):
    """A feature of a window; what its kind does not have is missing."""

    drifted = serializers.BooleanField()
    test = serializers.CharField(required=False, help_text="ks or chi2")
    p = serializers.FloatField(required=False)
    q = serializers.FloatField(required=False, help_text="p, adjusted for all features (Benjamini and Hochberg)")
    statistic = serializers.FloatField(required=False)
    distance = serializers.FloatField(required=False, help_text="Wasserstein in standard deviations, or Jensen-Shannon")
    psi = serializers.FloatField(required=False, help_text="population stability index")
    missing = serializers.FloatField(required=False, help_text="the share of rows without it")
    missing_before = serializers.FloatField(required=False)
    new = serializers.FloatField(required=False, help_text="the share of new categories or words")
    outside = serializers.FloatField(required=False, help_text="the share outside of the range of the reference")
    low = serializers.FloatField(required=False)
    high = serializers.FloatField(required=False)
    labels = serializers.ListField(child=serializers.CharField(), required=False)
    bars = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField()), required=False,
        help_text="the distributions of the reference and of the window",
    )  # fmt: skip


class DriftWindowDetailOut(DriftWindowOut):
    features = ComparedOut(many=True, help_text="the most drifted first")

    class Meta(DriftWindowOut.Meta):
        fields = (*DriftWindowOut.Meta.fields, "features")
