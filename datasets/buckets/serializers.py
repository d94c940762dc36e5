"""What the REST calls of uploads to external datasets accept and answer."""

from __future__ import annotations

from rest_framework import serializers

from kernel.fields import Invalid, PatternField, StrictInt, StrictSerializer, StrictString

from . import uploads

BIG = 2**63 - 1


class UploadIdField(PatternField):
    check = staticmethod(uploads.upload_id)
    pattern = rf"^{uploads.UPLOAD_ID}$"


class Items(serializers.ListField):
    """A list of at most `most` items."""

    def __init__(self, *, least: int, most: int, **kwargs):
        self.least, self.most = least, most
        super().__init__(**kwargs)

    def to_internal_value(self, data):
        if not isinstance(data, list):
            raise Invalid("must be a list")
        if not self.least <= len(data) <= self.most:
            raise Invalid("must have %(low)s to %(high)s elements", low=self.least, high=self.most)
        return super().to_internal_value(data)


class UploadFileIn(StrictSerializer):
    path = StrictString(allow_blank=True, help_text="path in the dataset")
    size = StrictInt(min_value=-BIG, max_value=BIG, help_text="bytes, at most 5 TiB")


class UploadsIn(StrictSerializer):
    files = Items(least=1, most=uploads.MOST_FILES, child=UploadFileIn(), help_text="at most 500")


class UploadPartsIn(StrictSerializer):
    path = StrictString(help_text="path in the dataset")
    size = StrictInt(min_value=0, max_value=uploads.MOST_BYTES, help_text="bytes of the whole file")
    upload = UploadIdField(help_text="UploadId that the bucket has given")
    numbers = Items(
        least=0, most=uploads.MOST_NUMBERS, child=StrictInt(min_value=1, max_value=10_000),
        help_text="parts to send next, from 1; at most 100",
    )  # fmt: skip


class UploadOut(serializers.Serializer):
    path = serializers.CharField()
    size = serializers.IntegerField(help_text="bytes")
    reason = serializers.CharField(default="", help_text="why it is refused; the other fields are left empty then")
    key = serializers.CharField(default="", help_text="its key in the bucket")
    type = serializers.CharField(default="", help_text="Content-Type to send with put and create; empty for none")
    part = serializers.IntegerField(default=0, help_text="bytes of each part but the last; 0: it is sent whole")
    parts = serializers.IntegerField(default=0, help_text="number of parts; 0: it is sent whole")
    head = serializers.CharField(default="", help_text="HEAD: what the bucket has there")
    put = serializers.CharField(default="", help_text="PUT: takes exactly its bytes; empty for a file in parts")
    create = serializers.CharField(default="", help_text="POST: begins an upload in parts")
    find = serializers.CharField(default="", help_text="GET: lists the unfinished uploads in parts of this key")


class UploadsOut(serializers.Serializer):
    expires = serializers.IntegerField(help_text="seconds for which the addresses are good")
    files = UploadOut(many=True, help_text="in the order of the request")


class UploadPartOut(serializers.Serializer):
    number = serializers.IntegerField()
    size = serializers.IntegerField(help_text="bytes")
    put = serializers.CharField(help_text="PUT: takes exactly its bytes")


class UploadPartsOut(serializers.Serializer):
    expires = serializers.IntegerField(help_text="seconds for which the addresses are good")
    parts = UploadPartOut(many=True)
    list = serializers.CharField(help_text="GET: lists the parts that the bucket has, from the lowest number on")
    complete = serializers.CharField(help_text="POST: joins the parts")
