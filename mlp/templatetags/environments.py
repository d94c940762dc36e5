"""The named environments of a user's tenants in templates: `{% load environments %}{% environment_field 'f4' %}`."""

from __future__ import annotations

from django import template

from jobs.packages.named import references

register = template.Library()


@register.inclusion_tag("jobs/_environment_field.html", takes_context=True)
def environment_field(context: dict, css: str = "") -> dict:
    """Show the choice of a named environment where there is one, or where one was chosen or refused."""
    user, problems, form = context["user"], context.get("problems"), context.get("form") or {}
    versions, names = references.offered(user), {}
    for version in versions:
        names.setdefault((version.environment.tenant_id, version.name), []).append(version)
    chosen = form.get("environment", "")
    known = {version.reference for version in versions} | {name for _tenant, name in names}
    return {
        "groups": [{"newest": versions[0], "versions": versions} for versions in names.values()],
        "several": len({tenant for tenant, _name in names}) > 1,
        "chosen": chosen,
        "missing": chosen if chosen not in known else "",
        "problem": problems.fields.get("environment", "") if problems else "",
        "css": css,
    }
