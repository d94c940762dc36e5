"""GPUs by product: what there is of each, and what is left for runs that name a type. Called by inventory, jobs,
applications and workspaces.

Tenants count GPUs, whatever their product, by try-confirm-cancel. A type is looked at beside that, when a job is
admitted: it waits while the others that have GPUs leave too few of its type, and the jobs behind it go on unless they
would take what it waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from django.conf import settings
from django.db import transaction
from django.db.models import Sum
from django.utils.translation import gettext_noop as _

import runners
from kernel.errors import Refused
from runners import gpu_types

from .models import GpuProduct, Tenant

HOLDERS: list[Callable[[], Iterable[tuple[str, int]]]] = []  # what has GPUs by type, of each kind of object
MOST_SETS = 10  # different sets of products, of the types that are in use at the same time


class NoneLeft(Refused):
    """Too few GPUs of the type are left. Other jobs go on, but leave this one the `left` ones."""

    def __init__(self, kind: str, count: int, left: int):
        said = {"count": count, "type": kind or "GPU", "left": left}
        super().__init__(_("needs %(count)s × %(type)s, %(left)s free"), field="gpu_type", **said)
        self.kind, self.left = kind, left


class Stock:
    """The GPUs by product, and those in use by the types that their runs have named; "" of those without a type."""

    def __init__(self, totals: Mapping[str, int], held: Mapping[str, int], in_use: int):
        """Take the GPUs of each product, those in use by type, and the number of all that are in use."""
        self.totals, self.held = totals, Counter(held)
        self.held[""] = max(0, in_use - sum(self.held.values()))

    def fresh(self) -> Stock:
        """Return an independent copy."""
        return Stock(self.totals, {kind: count for kind, count in self.held.items() if kind}, self.held.total())

    def of(self, kind: str) -> frozenset[str]:
        """Return the products that the type means."""
        return gpu_types.meant(kind, self.totals, settings.GPU_TYPES)

    def take(self, kind: str, count: int) -> None:
        """Add to what is in use."""
        self.held[kind] += count

    def left(self, kind: str, ahead: Mapping[str, int] | None = None) -> int:
        """Return how many GPUs of the type could still be taken, beside those in use and those `ahead` by type.

        Types overlap, so each is counted against the products that it can have: in no set of products there are more
        in use than there are (Hall's theorem).
        """
        held = self.held + Counter(ahead or {})
        sets = {other: products for other in held if (products := self.of(other))}
        # Never more than there are now: nodes may have gone since.
        needs = {other: min(held[other], sum(self.totals[product] for product in sets[other])) for other in sets}
        wanted = self.of(kind)
        if not wanted:
            return 0
        unions = {wanted}
        for each in sorted(set(sets.values()), key=lambda products: (len(products), sorted(products)))[:MOST_SETS]:
            unions |= {union | each for union in unions}
        return max(0, min(self._free(union, needs, sets) for union in unions))

    def _free(self, union: frozenset[str], needs: Mapping[str, int], sets: Mapping[str, frozenset[str]]) -> int:
        taken = sum(count for other, count in needs.items() if sets[other] <= union)
        return sum(self.totals[product] for product in union) - taken

    def refusal(self, kind: str, count: int, ahead: Mapping[str, int] | None = None) -> NoneLeft | None:
        """Return why a run with so many GPUs of the type has to wait; None if it has not. For types whose nodes come
        when a run waits for them, it does not wait here.
        """
        if not count or not (kind or ahead) or comes(kind):
            return None
        left = self.left(kind, ahead)
        return NoneLeft(kind, count, left) if left < count else None


def comes(kind: str) -> bool:
    """Return whether nodes with GPUs of the type are added for runs that wait."""
    return kind.casefold() in settings.GPU_TYPES and runners.get().adds_nodes


def lock() -> None:
    """Lock the rows of all products until the transaction ends, so that two admissions do not take the same GPUs."""
    list(GpuProduct.objects.select_for_update(no_key=True).order_by("pk"))


def register(held: Callable[[], Iterable[tuple[str, int]]]) -> None:
    """Count what `held` returns as in use: types, and how many GPUs runs that have named them have."""
    HOLDERS.append(held)


def current() -> Stock:
    """Return the GPUs of the platform, with those in use by the types that their runs have named."""
    held: Counter[str] = Counter()
    for find in HOLDERS:
        for kind, count in find():
            held[kind] += count
    return stock(held)


def require(kind: str, count: int, ahead: Mapping[str, int] | None = None) -> None:
    """Raise NoneLeft unless so many GPUs of the type are left for a run that is being admitted, beside those `ahead`.

    Locks the rows of the products where that matters, until the transaction ends; before the tenant's.
    """
    if not count or not (kind or ahead):
        return
    lock()
    refusal = current().refusal(kind, count, ahead)
    if refusal is not None:
        raise refusal


def stock(held: Mapping[str, int]) -> Stock:
    """Return the GPUs of the platform, with those in use by type."""
    totals = dict(GpuProduct.objects.values_list("name", "count"))
    return Stock(totals, held, Tenant.objects.aggregate(sum=Sum("gpu_inuse"))["sum"] or 0)


def offered() -> list[str]:
    """Return the names that jobs may give: those of an administrator that mean a product here, and the products."""
    products = dict(GpuProduct.objects.exclude(name="").order_by("name").values_list("name", "count"))
    named = [name for name in settings.GPU_TYPES if comes(name) or gpu_types.meant(name, products, settings.GPU_TYPES)]
    return [*sorted(named), *products]


def listed() -> list[dict]:
    """Return what `offered` does, each with the products that it means and how many GPUs there are of these."""
    here = stock({})
    means = {name: sorted(here.of(name)) for name in offered()}
    return [
        {"name": name, "gpus": sum(here.totals[product] for product in found), "products": found}
        for name, found in means.items()
    ]


def need_possible(kind: str, gpu: int, workers: int = 1) -> None:
    """Raise Refused for a type of GPUs that is not here, with those that are, and for more than there are of it."""
    if not kind:
        return
    if not gpu:
        raise Refused("names the type of GPUs, but no GPU is requested", field="gpu_type")
    if comes(kind):
        return
    here = stock({})
    meant, count = here.of(kind), gpu * workers
    if not meant:
        names = offered()
        if not names:
            raise Refused("the types of GPUs are not known here", field="gpu_type")
        raise Refused("no GPU here is of this type; there are: %(names)s", field="gpu_type", names=", ".join(names))
    if count > (most := sum(here.totals[product] for product in meant)):
        raise Refused(
            "requested %(count)s × %(type)s, but there are %(most)s",
            field="gpu_type", count=count, type=kind, most=most,
        )  # fmt: skip


@transaction.atomic
def follow(counts: Mapping[str, int]) -> None:
    """Record what there is of each product now."""
    lock()
    rows = dict(GpuProduct.objects.values_list("name", "count"))
    if rows == counts:
        return
    GpuProduct.objects.exclude(name__in=counts).delete()
    for name, count in counts.items():
        if rows.get(name) != count:
            GpuProduct.objects.update_or_create(name=name[:200], defaults={"count": count})
