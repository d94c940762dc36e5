"""The REST calls of drift, one class for each path: for the owner of the application, as those of records."""

from __future__ import annotations

from kernel.effects import READ
from kernel.locking import Missing
from kernel.views import Call

from ..models import DriftCheck, DriftWindow
from ..records.api import RecordView
from . import plan
from .serializers import DriftIn, DriftOut, DriftWindowDetailOut, DriftWindowOut


class AppDrift(RecordView):
    """A change of the reference, of a kind or of the window deletes what was compared before."""

    calls = {
        "GET": Call("Get how drift of an application is looked for", READ, out=DriftOut),
        "PUT": Call("Compare an application's requests and answers with a reference", body=DriftIn, out=DriftOut),
        "DELETE": Call("Stop looking for drift of an application", frees=True, out=DriftOut),
    }

    def get(self, request, user, name):
        app = self.application(name, kept=False)
        return self.answer(DriftCheck.objects.filter(app=app).first() or DriftCheck(app=app, user=app.user))

    def put(self, request, user, name):
        return self.answer(plan.set_check(user=self.owner, name=name, by=self.by, **self.body()))

    def delete(self, request, user, name):
        return self.answer(plan.set_check(user=self.owner, name=name, by=self.by, on=False))


class AppDriftWindows(RecordView):
    calls = {"GET": Call("List the windows that were compared, newest first", READ, out=DriftWindowOut, many=True)}

    def get(self, request, user, name):
        return self.page(DriftWindow.objects.filter(app=self.application(name)).defer("features"))


class AppDriftWindow(RecordView):
    calls = {"GET": Call("Get a window with its features", READ, out=DriftWindowDetailOut)}

    def get(self, request, user, name, number):
        row = DriftWindow.objects.filter(app=self.application(name), pk=number).first()
        if row is None:
            raise Missing("window")
        return self.answer(row)
