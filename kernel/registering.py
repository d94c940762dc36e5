"""What a program may change in the model registry of its user: a job by its own token, a named token for submission.

Everything of the registry is read by both. `registry` says what may be changed, `registry_models` of which registered
models, by name; none named are all. What is not said here takes the user's own token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import models
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from .effects import ALIAS, REGISTER, Effect
from .errors import Refused
from .fields import Invalid, StrictChoice, StrictSerializer, StrictString

MAX_MODELS, MAX_NAME = 100, 256


class Registry(models.TextChoices):
    """What may be changed."""

    READ = "read", _("read only")
    VERSIONS = "versions", _("register new versions")
    ALIASES = "aliases", _("register new versions and set aliases")


GIVEN = {Registry.READ: (), Registry.VERSIONS: (REGISTER,), Registry.ALIASES: (REGISTER, ALIAS)}
ORDER = list(Registry)


@dataclass(frozen=True)
class Rights:
    """What a program may change, and of which models; of all where none is named."""

    registry: str = Registry.VERSIONS
    models: tuple[str, ...] = ()

    def may(self, effect: Effect, name: str | None = None) -> bool:
        """Return whether a call with this effect is allowed, on the registered model of that name if one is given."""
        return effect in GIVEN[Registry(self.registry)] and (name is None or not self.models or name in self.models)

    def require(self, effect: Effect, name: str) -> None:
        """Check a call as `may` does. Raises Refused."""
        if not self.may(effect, name):
            raise Refused("this token may not do that with the registered model %(name)s", field="token", name=name)

    def covers(self, others: Rights) -> bool:
        """Return whether these rights have all that the others have."""
        both = self.narrowed(others.registry, others.models)
        same = both.registry == others.registry and set(both.models) == set(others.models)
        return same or others.registry == Registry.READ

    def narrowed(self, registry: str, names: Sequence[str]) -> Rights:
        """Return those of the rights that this one has, too."""
        least = min(Registry(registry), Registry(self.registry), key=ORDER.index)
        if not self.models:
            return Rights(least, tuple(names))
        both = tuple(name for name in self.models if not names or name in names)
        return Rights(least if both else Registry.READ, both)


ALL = Rights(Registry.ALIASES)


class RegistryRights(models.Model):
    """Fields of a model that holds registry rights."""

    registry = models.CharField(
        _("model registry"), max_length=8, choices=Registry.choices, default=Registry.VERSIONS,
        db_default=Registry.VERSIONS.value,
    )  # fmt: skip
    registry_models = models.JSONField(_("registered models"), default=list, blank=True, db_default=[])

    class Meta:
        abstract = True

    @property
    def registry_rights(self) -> Rights:
        return Rights(self.registry, tuple(self.registry_models))


def rights_of(credentials: object) -> Rights:
    """Return what a request may change: all with a session or a full token. `credentials` are its `auth`."""
    return getattr(credentials, "rights", ALL)


def narrowed(rights: Rights, body):
    """Return the body of a call whose jobs have no more rights than the caller: what it leaves out is narrowed, what it
    asks beyond is refused. A job is the body itself, or its `job`, that of its `sweep`, or one of its `steps`.
    """
    if rights == ALL or not isinstance(body, dict):
        return body
    inner = {name: narrowed(rights, body[name]) for name in ("job", "sweep") if name in body}
    if isinstance(body.get("steps"), dict):
        inner["steps"] = {name: narrowed(rights, step) for name, step in body["steps"].items()}
    own = narrowed_job(rights, body) if isinstance(body.get("entry"), str) else {}
    return {**body, **inner, **own}


def narrowed_job(rights: Rights, asked: Mapping) -> dict:
    """Return the fields of a job for as much as `rights` have. Raises Refused."""
    level, names = asked.get("registry", Registry.VERSIONS.value), asked.get("registry_models", [])
    least = rights.narrowed(level, names)
    if set(names) - set(least.models):
        raise Refused("this token may give a job no more than: %(most)s", field="registry_models",
                      most=", ".join(rights.models))  # fmt: skip
    if "registry" in asked and least.registry != level:
        raise Refused("this token may give a job no more than: %(most)s", field="registry", most=rights.registry)
    return {"registry": str(least.registry), "registry_models": list(least.models)}


def model_names(given: Sequence[str]) -> list[str]:
    """Return the names of registered models, each once. Raises Refused."""
    if len(given) > MAX_MODELS:
        raise Refused("must be at most %(limit)s", field="registry_models", limit=MAX_MODELS)
    if any(not name.strip() or len(name) > MAX_NAME for name in given):
        raise Refused("must be a line of 1 to %(limit)s characters", field="registry_models", limit=MAX_NAME)
    return list(dict.fromkeys(given))


def lines_of(text: str) -> list[str]:
    """Return the names of a form's field, one on each line."""
    return [line.strip() for line in text.splitlines() if line.strip()]


class ModelNamesField(serializers.ListField):
    """Names of registered models."""

    def __init__(self):
        super().__init__(
            child=StrictString(max_length=MAX_NAME), required=False, max_length=MAX_MODELS,
            help_text="names of the registered models that it may change; all by default",
        )  # fmt: skip

    def to_internal_value(self, data):
        if not isinstance(data, list):
            raise Invalid("must be a list")
        return list(dict.fromkeys(super().to_internal_value(data)))


class RegistryIn(StrictSerializer):
    """The fields of a body that gives such rights."""

    registry = StrictChoice(
        choices=Registry.choices, required=False,
        help_text="what its token may change in the model registry; default: versions",
    )  # fmt: skip
    registry_models = ModelNamesField()


class RegistryOut(serializers.Serializer):
    """The fields of an answer that shows such rights."""

    registry = serializers.ChoiceField(choices=Registry.choices, help_text="what its token may change in the registry")
    registry_models = serializers.ListField(child=serializers.CharField(), help_text="of these models; of all if empty")
