"""The rows of the registry as lists, pages and calls read them: in a fixed number of queries."""

from __future__ import annotations

from django.db.models import Max, OuterRef, Prefetch, QuerySet, Subquery

from models_app.models import Alias, ModelVersion, RegisteredModel


def registered() -> QuerySet[RegisteredModel]:
    """Return the registered models with their aliases and the number of the newest version, `newest`."""
    newest = ModelVersion.objects.filter(registered=OuterRef("pk")).order_by("-number").values("number")[:1]
    aliases = Prefetch("aliases", Alias.objects.select_related("version", "registered").order_by("name"))
    return RegisteredModel.objects.select_related("user").annotate(newest=Subquery(newest)).prefetch_related(aliases)


def versions() -> QuerySet[ModelVersion]:
    """Return the versions with what their answers show."""
    return ModelVersion.objects.select_related("registered__user", "model", "job").prefetch_related("aliases")


def latest_of(rows: list[RegisteredModel]) -> dict[int, list[ModelVersion]]:
    """Return the newest version of each stage, by the key of the registered model."""
    keys = [row.pk for row in rows]
    newest = ModelVersion.objects.filter(registered__in=keys).values("registered", "stage").annotate(top=Max("number"))
    wanted = {(row["registered"], row["top"]) for row in newest.order_by()}
    versions_by_model: dict[int, list[ModelVersion]] = {key: [] for key in keys}
    numbers = {number for _key, number in wanted}
    for version in versions().filter(registered__in=keys, number__in=numbers).order_by("number"):
        if (version.registered_id, version.number) in wanted:
            versions_by_model[version.registered_id].append(version)
    return versions_by_model
