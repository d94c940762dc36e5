"""Models of tenants' own: whose lines they judge, and which of them there are.

A tenant has a model of its own where an administrator of the platform says so (`Tenant.log_model`). A line belongs to a
user and not to a tenant, so the model judges the lines of those who are in this tenant and in no other, of their
service accounts too, and not of the platform's administrators: those that the tenant's administrator may see (scope).
All others are the platform's: of its own components, of other clusters, and of users in several tenants.

A model is named by its tenant's key, the platform's by 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.db.models import Exists, OuterRef, Q
from django.utils.translation import gettext_lazy as _

from accounts.models import ADMINISTRATORS, Membership, User
from aiops.models import ModelVersion, State, TrainingRun
from aiops.wire import watchlist
from resources.models import Tenant

from .scope import LOCAL

PLATFORM = 0
DELETED = _("(deleted)")  # in place of the name of a tenant that is deleted

Owners = Mapping[str, int]  # the model of each namespace of the local cluster that is not the platform's


def owners() -> dict[str, int]:
    """Return the namespaces whose lines are judged by a tenant's own model, and by which."""
    others = Membership.objects.filter(user_id=OuterRef("user_id")).exclude(tenant_id=OuterRef("tenant_id"))
    rows = Membership.objects.filter(~Exists(others), tenant__log_model=True)
    rows = rows.exclude(user__in=User.objects.filter(ADMINISTRATORS))
    tenants = dict(rows.values_list("user_id", "tenant_id"))
    if not tenants:
        return {}
    users = User.objects.filter(Q(pk__in=tenants) | Q(owner_id__in=tenants))
    return {name: tenants[owner or pk] for name, pk, owner in users.values_list("username", "pk", "owner_id")}


def model_of(cluster: str, namespace: str, known: Owners) -> int:
    """Return which model judges the lines of the namespace."""
    return known.get(namespace, PLATFORM) if cluster in ("", LOCAL) else PLATFORM


def those_of(names: Iterable[watchlist.Triple], model: int, known: Owners | None = None) -> set[watchlist.Triple]:
    """Return the workloads among these whose lines the model judges."""
    known = owners() if known is None else known
    return {triple for triple in names if model_of(*triple[:2], known) == model}


def all_own() -> set[int]:
    """Return the models that tenants have of their own, trained or not."""
    return set(Tenant.objects.filter(log_model=True).values_list("pk", flat=True))


def trained() -> set[int]:
    """Return the models of which a version serves."""
    return {key or PLATFORM for key in ModelVersion.objects.filter(serving=True).values_list("tenant_id", flat=True)}


def judged(names: Iterable[watchlist.Triple]) -> list[set[watchlist.Triple]]:
    """Return the workloads among these whose model has been trained, by model."""
    known, there = owners(), trained()
    groups: dict[int, set[watchlist.Triple]] = {}
    for triple in names:
        model = model_of(*triple[:2], known)
        if model in there:
            groups.setdefault(model, set()).add(triple)
    return [groups[model] for model in sorted(groups)]


def untrained(names: Iterable[watchlist.Triple]) -> dict[watchlist.Triple, bool]:
    """Return the workloads among these whose lines wait for the first training of their tenant's own model, and whether
    it is queued or runs.
    """
    known = owners()
    there = trained() if known else set()
    models = {triple: model_of(*triple[:2], known) for triple in names}
    waiting = {triple: model for triple, model in models.items() if model not in {PLATFORM, *there}}
    if not waiting:
        return {}
    runs = TrainingRun.objects.filter(state=State.TRAINING, tenant_id__in=set(waiting.values()))
    begun = set(runs.values_list("tenant_id", flat=True))
    return {triple: model in begun for triple, model in waiting.items()}


def shown_to(user: User):
    """Return the tenants with a model of their own that the user may know of: those that the user is in; all for an
    administrator of the platform.
    """
    rows = Tenant.objects.filter(log_model=True).order_by("name")
    return rows if user.is_administrator else rows.filter(pk__in=user.roles())


def namespaces_of(model: int) -> set[str]:
    """Return the namespaces of the local cluster whose lines a tenant's own model judges."""
    return {namespace for namespace, number in owners().items() if number == model}


# --- which model judged a line -------------------------------------------------------------------------------------
def stored(inference_model: str, tenant: int) -> str:
    """Return how the log store has what judged a line: of a tenant's own model with its number."""
    return f"{inference_model}:{tenant}" if tenant and inference_model else inference_model


def read(document: Mapping) -> tuple[str, int]:
    """Return what judged a stored line, and the model."""
    name, _colon, tenant = str(document.get("inference_model") or "").partition(":")
    return name, int(tenant) if tenant.isdecimal() else PLATFORM


def names_of(models: Iterable[int]) -> dict[int, str]:
    """Return the names of the models' tenants; "" for the platform's model."""
    wanted = set(models) - {PLATFORM}
    there = dict(Tenant.objects.filter(pk__in=wanted).values_list("pk", "name")) if wanted else {}
    return {PLATFORM: "", **dict.fromkeys(wanted, str(DELETED)), **there}
