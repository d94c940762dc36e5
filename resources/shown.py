"""Amounts and policies of tenants as text for administrators: resources.admin, mlp.operators."""

from __future__ import annotations

from decimal import Decimal

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from kernel import units
from kernel.admin_display import bar
from kernel.messages import filled

from . import tcc
from .models import KINDS, LENDABLE, Loan, Tenant

NAMES = {"gpu": _("GPU"), "cpu": _("CPU"), "ram": _("Memory"), "rom": _("Disk")}


def amount(kind: str, value) -> str:
    """Format an amount for people: `2`, `1.5`, `4 GiB`."""
    if kind == "rom":
        return units.size(value)
    if kind == "ram":
        return units.memory(int(value))
    if kind == "cpu":
        return f"{Decimal(value).normalize():f}"
    return str(value)


def share(tenant: Tenant, kind: str) -> str:
    """Return a bar of what is in use of a tenant's capacity."""
    used, whole = getattr(tenant, f"{kind}_inuse"), getattr(tenant, kind)
    text = gettext("%(used)s of %(whole)s") % {"used": amount(kind, used), "whole": amount(kind, whole)}
    if tenant.borrowed(kind):
        text += ", " + gettext("%(amount)s borrowed") % {"amount": amount(kind, tenant.borrowed(kind))}
    if tenant.lent(kind):
        text += ", " + gettext("%(amount)s lent") % {"amount": amount(kind, tenant.lent(kind))}
    return bar(used, whole, text)


def in_words(row) -> str:
    """Format all amounts that are not zero: `1 GPU, 2 CPU, 512 MiB RAM`."""
    given = [f"{amount(kind, getattr(row, kind))} {NAMES[kind]}" for kind in KINDS if getattr(row, kind)]
    return ", ".join(given) or "-"


def some(values: dict) -> str:
    """Format the amounts of the kinds that are not zero: `1 GPU, 2 CPU`; empty for none."""
    return ", ".join(f"{amount(kind, value)} {NAMES[kind]}" for kind, value in values.items() if value)


def compare(tenant: Tenant) -> list[dict]:
    """Compare what the tenant's row says is in use with the sum of its requests, up to three times while they differ.

    The two are read one after the other while requests come and go, so only a lasting difference is one.
    """
    for _attempt in range(3):
        allocated = tcc.allocated(tenant)
        row = Tenant.objects.get(pk=tenant.pk)
        differs = [kind for kind in KINDS if allocated[kind] != getattr(row, f"{kind}_inuse")]
        if not differs:
            break
    return [
        {
            "name": NAMES[kind],
            "bar": share(row, kind),
            "capacity": amount(kind, getattr(row, kind)),
            "inuse": amount(kind, getattr(row, f"{kind}_inuse")),
            "allocated": amount(kind, allocated[kind]),
            "differs": kind in differs,
        }
        for kind in KINDS
    ]


def idle_in_words(tenant: Tenant) -> str:
    """Return when idle jobs of the tenant are stopped."""
    shown = []
    if tenant.idle_gpu_minutes:
        shown.append(
            gettext("GPU below %(percent)s %% for %(minutes)s min")
            % {"percent": tenant.idle_gpu_percent, "minutes": tenant.idle_gpu_minutes}
        )
    if tenant.idle_cpu_minutes:
        shown.append(
            gettext("CPU below %(percent)s %% for %(minutes)s min")
            % {"percent": tenant.idle_cpu_percent, "minutes": tenant.idle_cpu_minutes}
        )
    if not shown:
        return gettext("are not stopped")
    stop = gettext("stopped %(minutes)s min after a warning") % {"minutes": tenant.idle_grace_minutes}
    return f"{'; '.join(shown)}: {stop}"


def retention_in_words(tenant: Tenant) -> str:
    """Return when what users delete, and what ended jobs have left, is removed."""
    texts = {
        "trash_days": gettext("trash after %(days)s days"),
        "log_days": gettext("logs after %(days)s days"),
        "metrics_days": gettext("metrics after %(days)s days"),
        "output_days": gettext("outputs after %(days)s days"),
    }
    shown = [
        filled(text, {"days": getattr(tenant, field)})
        for field, text in texts.items()
        if getattr(tenant, field) is not None
    ]
    return "; ".join(shown) or gettext("as the settings say")


def interactive_in_words(tenant: Tenant) -> str:
    """Return whether members may have workspaces and attach to jobs, and when workspaces are stopped."""
    shown = [gettext("workspaces allowed") if tenant.allows_workspaces else gettext("no workspaces")]
    if tenant.allows_workspaces and tenant.workspace_idle_minutes:
        shown.append(gettext("stopped when idle for %(minutes)s min") % {"minutes": tenant.workspace_idle_minutes})
    if tenant.allows_workspaces and tenant.workspace_hours:
        shown.append(gettext("stopped after %(hours)s h") % {"hours": tenant.workspace_hours})
    attach = gettext("attaching to jobs allowed") if tenant.allows_attach else gettext("no attaching to jobs")
    return "; ".join([*shown, attach])


def lending_in_words(tenant: Tenant) -> str:
    """Return whether the tenant lends and how much it may borrow, with its present loans."""
    shown = [gettext("lends idle resources") if tenant.lends else gettext("lends nothing")]
    if limit := some({kind: tenant.borrow_limit(kind) for kind in LENDABLE}):
        shown.append(gettext("borrows up to %(amounts)s") % {"amounts": limit})
    else:
        shown.append(gettext("borrows nothing"))
    loans = Loan.objects.select_related("lender", "borrower").order_by("pk")
    for loan in loans.filter(lender=tenant):
        said = {"amounts": some({kind: getattr(loan, kind) for kind in LENDABLE}), "tenant": loan.borrower.name}
        shown.append(gettext("has lent %(amounts)s to %(tenant)s") % said)
    for loan in loans.filter(borrower=tenant):
        said = {"amounts": some({kind: getattr(loan, kind) for kind in LENDABLE}), "tenant": loan.lender.name}
        shown.append(gettext("has borrowed %(amounts)s from %(tenant)s") % said)
    return "; ".join(shown)
