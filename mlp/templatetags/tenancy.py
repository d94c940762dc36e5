"""The tenants of a user in templates: `{% load tenancy %}{% tenant_field 'f4' %}` in a form that creates something."""

from __future__ import annotations

from django import template

from accounts.tenancy import members

register = template.Library()


@register.inclusion_tag("_tenant_field.html", takes_context=True)
def tenant_field(context: dict, css: str = "") -> dict:
    """Show the choice of the tenant where the user may submit to several; else nothing but what was refused."""
    user, problems, form = context["user"], context.get("problems"), context.get("form") or {}
    return {
        "tenants": members.open_to(user),
        "chosen": form.get("tenant", ""),
        "default": user.tenant_id,
        "problem": problems.fields.get("tenant", "") if problems else "",
        "css": css,
    }
