"""The REST calls of the environments of packages, one class for each path."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.response import Response

from kernel.effects import DESTROY, READ
from kernel.rest import PAGE_LIMIT
from kernel.views import Call, ContractView, query_int

from . import listing

DIGEST = "^[0-9a-f]{32}$"


class EnvironmentUseOut(serializers.Serializer):
    kind = serializers.ChoiceField(choices=("job", "model", "application", "environment"))
    name = serializers.CharField()


class EnvironmentOut(serializers.Serializer):
    digest = serializers.CharField()
    state = serializers.ChoiceField(choices=listing.STATES)
    reason = serializers.CharField(allow_blank=True)
    requirements = serializers.CharField(allow_blank=True, help_text="what was asked for, one requirement a line")
    packages = serializers.ListField(child=serializers.CharField(), help_text="what was installed, as name==version")
    size = serializers.IntegerField(help_text="in MiB")
    created = serializers.DateTimeField()
    used = serializers.DateTimeField(allow_null=True, help_text="when a run was last started with it")
    log = serializers.CharField(allow_blank=True, help_text="the installer's last lines while it is being installed")
    used_by = EnvironmentUseOut(many=True)


class EnvironmentView(ContractView):
    kind = "environment"
    segments = {**ContractView.segments, "digest": DIGEST}


class EnvironmentList(EnvironmentView):
    calls = {
        "GET": Call("List the user's environments of packages, last used first", READ, out=EnvironmentOut, many=True)
    }

    def get(self, request, user):
        limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        rows = listing.of_user(self.owner)
        shown = EnvironmentOut(rows[offset : offset + limit], many=True).data
        return Response(shown, headers={"X-Total-Count": str(len(rows))})


class EnvironmentDetail(EnvironmentView):
    calls = {
        "GET": Call("Get an environment of packages", READ, out=EnvironmentOut),
        "DELETE": Call(
            "Remove an environment of packages; what names it installs it again", DESTROY, out=EnvironmentOut
        ),
    }

    def get(self, request, user, digest):
        return self.answer(listing.find(self.owner, digest))

    def delete(self, request, user, digest):
        return self.answer(listing.remove(self.owner, digest))
