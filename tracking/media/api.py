"""REST for a run's media. The files are downloaded like any other output."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.response import Response

from jobs.api import JobView
from kernel.effects import READ
from kernel.errors import Refused
from kernel.rest import PAGE_LIMIT
from kernel.views import Call, query_int, whole

from .index import KINDS, of_job, path_of


class MediumOut(serializers.Serializer):
    kind = serializers.ChoiceField(choices=KINDS)
    name = serializers.CharField()
    step = serializers.IntegerField()
    path = serializers.SerializerMethodField(help_text="of the file: .../artifacts/{path} downloads it")
    caption = serializers.CharField(allow_blank=True)
    time = serializers.FloatField(help_text="seconds since 1970")
    attempt = serializers.IntegerField()

    def get_path(self, item) -> str:
        return path_of(item.file)


class JobMedia(JobView):
    """Pictures, tables, histograms, confusion matrices, audio and texts that the script has logged by `mlp_report`."""

    calls = {
        "GET": Call(
            "List a job's media, in the order in which they were logged",
            READ,
            out=MediumOut,
            many=True,
            query=(
                ("kind", {"type": "string", "enum": list(KINDS)}, "only this kind"),
                ("name", str, "only media of this name"),
                ("step", whole(), "only media of this step"),
            ),
        )
    }

    def get(self, request, user, name):
        items = of_job(self.job(name)).items
        kind = request.query_params.get("kind")
        if kind is not None and kind not in KINDS:
            raise Refused("must be one of %(choices)s", field="kind", choices=", ".join(KINDS))
        wanted = request.query_params.get("name")
        step = query_int(request, "step", -1, 0)
        limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        media = [
            item
            for item in items
            if kind in (None, item.kind) and wanted in (None, item.name) and step in (-1, item.step)
        ]
        page = MediumOut(media[offset : offset + limit], many=True).data
        return Response(page, headers={"X-Total-Count": str(len(media))})
