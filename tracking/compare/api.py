"""REST for saved comparisons."""

from __future__ import annotations

from rest_framework import serializers

from accounts.sharing.rest import SharedReads
from jobs.models import Comparison
from jobs.serializers import StrictList
from jobs.summaries import labels
from kernel.effects import DESTROY, READ
from kernel.fields import NameField, PatternField, StrictSerializer, StrictString
from kernel.names import NAME
from kernel.views import Call

from . import saved

EDGE, INSIDE = (each.replace("[^", "[^/") for each in (labels.EDGE, labels.INSIDE))
SAVED_NAME = rf"^(?!\.\.?$){EDGE}({INSIDE}{{0,{labels.MAX_VIEW - 2}}}{EDGE})?$"


class ComparisonNameField(PatternField):
    check = staticmethod(labels.comparison_name)
    pattern = SAVED_NAME


class ComparisonEditIn(StrictSerializer):
    jobs = StrictList(child=NameField(), required=False, min_length=1, max_length=saved.MAX_JOBS)
    query = StrictString(
        required=False,
        allow_blank=True,
        max_length=saved.MAX_QUERY,
        help_text="the settings, as in the page's address",
    )


class ComparisonIn(ComparisonEditIn):
    name = ComparisonNameField()
    jobs = StrictList(child=NameField(), min_length=1, max_length=saved.MAX_JOBS)


class ComparisonOut(serializers.Serializer):
    name = serializers.CharField()
    user = serializers.CharField(source="user.username")
    jobs = serializers.ListField(child=serializers.CharField(), source="names", help_text="without those in the trash")
    query = serializers.CharField(allow_blank=True)
    created = serializers.DateTimeField()
    updated = serializers.DateTimeField()


class ComparisonView(SharedReads):
    kind = "comparison"
    shared = Comparison
    segments = {"user": NAME, "name": SAVED_NAME}


class ComparisonList(ComparisonView):
    calls = {
        "POST": Call("Save a comparison of jobs", body=ComparisonIn, out=ComparisonOut, status=201),
        "GET": Call("List the user's saved comparisons, newest first", READ, out=ComparisonOut, many=True),
    }

    def post(self, request, user):
        return self.answer(saved.save(self.owner, **self.body()))

    def get(self, request, user):
        return self.page(saved.rows_of(self.owner))


class ComparisonDetail(ComparisonView):
    """A saved comparison. With whom it is shared reads its jobs, too."""

    calls = {
        "GET": Call("Get a saved comparison", READ, out=ComparisonOut),
        "PUT": Call("Change a comparison's jobs or settings", body=ComparisonEditIn, out=ComparisonOut),
        "DELETE": Call("Delete a saved comparison; its jobs stay", DESTROY),
    }

    def get(self, request, user, name):
        return self.answer(saved.find(self.owner, name))

    def put(self, request, user, name):
        return self.answer(saved.edit(self.owner, name, **self.body()))

    def delete(self, request, user, name):
        saved.delete(self.owner, name)
        return self.answer()
