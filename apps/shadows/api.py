"""The REST calls of shadows, one class for each path: for the owner of the application, not for those whom it is shared
with, as pairs of answers have what callers have sent.
"""

from __future__ import annotations

from kernel.effects import READ
from kernel.locking import Missing
from kernel.views import Call, ContractView

from ..models import Application, Shadow
from ..serializers import AppOut
from . import rows, verbs
from .serializers import ShadowIn, ShadowOut, ShadowPairOut


class ShadowView(ContractView):
    """A call about the shadow of one application."""

    kind = "application"

    def application(self, name: str) -> Application:
        """Return the owner's application of that name. Raises Missing."""
        joined = ("user", "tenant", "model", "alias__registered", "rollout__model")
        app = Application.objects.filter(user=self.owner, name=name, trashed=None).select_related(*joined).first()
        if app is None:
            raise Missing("application")
        return app

    def latest(self, name: str) -> Shadow:
        """Return the present or the last shadow of an application. Raises Missing."""
        shadow = rows.latest(self.application(name))
        if shadow is None:
            raise Missing("shadow")
        return shadow


class AppShadow(ShadowView):
    """With a shadow, requests are copied to another model after they are answered: its answers are only compared, and
    no caller sees it, nor waits for it. It has the resources of a second run of the application.
    """

    calls = {
        "GET": Call("Get what came of an application's shadow, or of the last that it had", READ, out=ShadowOut),
        "PUT": Call("Copy an application's requests to another model", body=ShadowIn, out=AppOut),
        "DELETE": Call("End an application's shadow", frees=True, out=AppOut),
    }

    def get(self, request, user, name):
        return self.answer(self.latest(name))

    def put(self, request, user, name):
        verbs.begin(user=self.owner, name=name, by=self.by, **self.body())
        return self.answer(self.application(name))

    def delete(self, request, user, name):
        verbs.end(user=self.owner, name=name, by=self.by)
        return self.answer(self.application(name))


class AppShadowPromote(ShadowView):
    """All requests go to the shadow's run then, which is up already; the application follows no alias any more. Where
    the tenant approves rollouts, it waits for that.
    """

    calls = {"PUT": Call("Let an application serve the model of its shadow", out=AppOut)}

    def put(self, request, user, name):
        verbs.promote(user=self.owner, name=name, by=self.by)
        return self.answer(self.application(name))


class AppShadowPairs(ShadowView):
    """A sample: the latest 50. They are deleted after 30 days, or earlier where the tenant keeps records for less."""

    calls = {
        "GET": Call("List requests that a shadow answered differently", READ, out=ShadowPairOut, many=True),
    }

    def get(self, request, user, name):
        return self.page(self.latest(name).pairs.order_by("-pk"))
