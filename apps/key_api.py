"""The REST calls about the callers of an application: its keys, and what its owner allows them."""

from __future__ import annotations

from kernel.effects import ACCOUNT
from kernel.locking import Missing
from kernel.views import Call, ContractView

from . import callers, keys
from .models import AppKey, Application
from .serializers import AppAccessIn, AppKeyChangeIn, AppKeyDetailOut, AppKeyIn, AppKeyMade, AppKeyOut, AppOut


class AppKeyView(ContractView):
    """A call about one application, for those who may change it."""

    kind = "application"

    def application(self, name: str) -> Application:
        """Return the owner's application of that name. Raises Missing."""
        app = (
            Application.objects.filter(user=self.owner, name=name)
            .select_related("user", "tenant", "model", "alias__registered", "rollout__model")
            .prefetch_related("replicas")
            .first()
        )
        if app is None:
            raise Missing("application")
        return app

    def key(self, app: Application, name: str) -> AppKey:
        """Return the application's key of that name. Raises Missing."""
        row = keys.keys_of(app).filter(name=name).first()
        if row is None:
            raise Missing("key")
        return row


class AppKeys(AppKeyView):
    """Keys open one application. No named token makes these calls."""

    calls = {
        "GET": Call("List the application's keys, newest first", ACCOUNT, out=AppKeyOut, many=True),
        "POST": Call(
            "Make a key of an application; its text is shown once", ACCOUNT, body=AppKeyIn, out=AppKeyMade, status=201
        ),
    }

    def get(self, request, user, name):
        return self.page(keys.keys_of(self.application(name)))

    def post(self, request, user, name):
        app = self.application(name)
        row, text = keys.create(app=app, by=self.by, **self.body())
        row = self.key(app, row.name)
        row.key = text
        return self.answer(row)


class AppKeyDetail(AppKeyView):
    calls = {
        "GET": Call(
            "Get a key, with its requests and tokens of each of the last 30 days", ACCOUNT, out=AppKeyDetailOut
        ),
        "PUT": Call(
            "Change a key's end or limits; what is not given stays as it is",
            ACCOUNT,
            body=AppKeyChangeIn,
            out=AppKeyOut,
        ),
        "DELETE": Call("Revoke a key: it stops working at once", ACCOUNT, out=AppKeyOut),
    }

    def get(self, request, user, name, key):
        row = self.key(self.application(name), key)
        row.days = [day._asdict() for day in keys.days_of([row])[row.pk]]
        return self.answer(row)

    def put(self, request, user, name, key):
        app = self.application(name)
        keys.change(app=app, name=key, by=self.by, **self.body())
        return self.answer(self.key(app, key))

    def delete(self, request, user, name, key):
        app = self.application(name)
        row = self.key(app, key)
        keys.revoke(app=app, name=key, by=self.by)
        return self.answer(row)


class AppAccess(AppKeyView):
    """Fields that are not given stay as they are. The gateway knows the change within a second."""

    calls = {"PUT": Call("Change what an application's callers may do", body=AppAccessIn, out=AppOut)}

    def put(self, request, user, name):
        callers.set_access(user=self.owner, name=name, by=self.by, **self.body())
        return self.answer(self.application(name))
