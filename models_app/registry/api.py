"""The REST calls of the registry, one class for each path."""

from __future__ import annotations

from accounts.sharing.rest import SharedReads
from kernel.effects import ALIAS, DESTROY, READ, REGISTER
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.names import NAME as USER
from kernel.registering import rights_of
from kernel.views import Call
from models_app.models import ModelVersion, RegisteredModel

from . import reading, registered, sources, versions
from .serializers import (
    NAME,
    AliasIn,
    ModelVersionOut,
    RegisteredEditIn,
    RegisteredIn,
    RegisteredOut,
    VersionEditIn,
    VersionIn,
)


class RegistryView(SharedReads):
    """A call about the registered models of one user."""

    kind = "registered model"
    shared = RegisteredModel
    segments = {"user": USER, "name": NAME, "number": r"^[0-9]{1,9}$", "alias": r"^[\w-]{1,255}$"}

    def registered(self, name: str) -> RegisteredModel:
        """Return the owner's registered model. Raises Missing."""
        row = reading.registered().filter(user=self.owner, name=name).first() if "\x00" not in name else None
        if row is None:
            raise Missing("registered model")
        return row

    def version(self, name: str, number: int) -> ModelVersion:
        """Return a version of the owner's registered model. Raises Missing."""
        row = reading.versions().filter(registered=registered.find(self.owner, name), number=number).first()
        if row is None:
            raise Missing("version")
        return row


class RegistryList(RegistryView):
    calls = {
        "POST": Call(
            "Register a model: a name for versions", REGISTER, body=RegisteredIn, out=RegisteredOut, status=201
        ),
        "GET": Call("List the user's registered models, newest first", READ, out=RegisteredOut, many=True),
    }

    def post(self, request, user):
        rights_of(request.auth).require(REGISTER, self.body()["name"])
        row = registered.create(self.owner, by=self.by, **self.body())
        return self.answer(self.registered(row.name))

    def get(self, request, user):
        return self.page(reading.registered().filter(user=self.owner))


class RegistryDetail(RegistryView):
    calls = {
        "GET": Call("Get a registered model", READ, out=RegisteredOut),
        "PUT": Call("Change its name, title, description or tags", body=RegisteredEditIn, out=RegisteredOut),
        "DELETE": Call("Delete a registered model with its versions and their files", DESTROY),
    }

    def get(self, request, user, name):
        return self.answer(self.registered(name))

    def put(self, request, user, name):
        body = self.body()
        tags = body.get("tags")
        if tags is not None:
            registered.set_tags(self.owner, name, tags, self.by)
        fields = {field: body.get(field) for field in ("title", "description")}
        row = registered.edit(self.owner, name, new_name=body.get("name"), **fields, by=self.by)
        return self.answer(self.registered(row.name))

    def delete(self, request, user, name):
        registered.delete(self.owner, name, self.by)
        return self.answer()


class VersionList(RegistryView):
    calls = {
        "POST": Call(
            "Register a version: its files are copied and checked to load",
            REGISTER,
            body=VersionIn,
            out=ModelVersionOut,
            status=201,
        ),
        "GET": Call("List the versions, newest first", READ, out=ModelVersionOut, many=True),
    }

    def post(self, request, user, name):
        body = self.body()
        rights_of(request.auth).require(REGISTER, name)
        files = sources.files_of(self.owner, body["source"])
        row = versions.create(self.owner, name, files=files, by=self.by, **body)
        return self.answer(self.version(name, row.number))

    def get(self, request, user, name):
        return self.page(reading.versions().filter(registered=registered.find(self.owner, name)))


class VersionDetail(RegistryView):
    calls = {
        "GET": Call("Get a version", READ, out=ModelVersionOut),
        "PUT": Call("Change a version's description, tags or stage", body=VersionEditIn, out=ModelVersionOut),
        "DELETE": Call("Delete a version with the files that were copied for it", DESTROY),
    }

    def get(self, request, user, name, number):
        return self.answer(self.version(name, number))

    def put(self, request, user, name, number):
        body, at = self.body(), (self.owner, name, number)
        if "archive" in body and "stage" not in body:
            raise Refused("requires a stage", field="archive")
        if "description" in body:
            versions.edit(*at, description=body["description"], by=self.by)
        if "tags" in body:
            versions.set_tags(*at, body["tags"], self.by)
        if "stage" in body:
            versions.set_stage(*at, body["stage"], archive=body.get("archive", False), by=self.by)
        return self.answer(self.version(name, number))

    def delete(self, request, user, name, number):
        versions.delete(self.owner, name, number, self.by)
        return self.answer()


class AliasDetail(RegistryView):
    calls = {
        "GET": Call("Get the version that an alias names; latest is the newest", READ, out=ModelVersionOut),
        "PUT": Call("Set an alias, or move it to another version", ALIAS, body=AliasIn, out=ModelVersionOut),
        "DELETE": Call("Delete an alias", DESTROY),
    }

    def get(self, request, user, name, alias):
        version = registered.version_of_alias(registered.find(self.owner, name), alias)
        return self.answer(self.version(name, version.number))

    def put(self, request, user, name, alias):
        number = self.body()["version"]
        rights_of(request.auth).require(ALIAS, name)
        registered.set_alias(self.owner, name, alias, number, self.by)
        return self.answer(self.version(name, number))

    def delete(self, request, user, name, alias):
        registered.delete_alias(self.owner, name, alias, self.by)
        return self.answer()
