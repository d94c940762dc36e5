"""Addresses of objects in templates: `{% load sharing %}{% address job %}`, `{% address job 'job_file' path %}`.

`{% address_of request.reading.owner 'compare' %}` is for a page that is not one object's.
"""

from __future__ import annotations

from django import template
from django.db.models import Model

from accounts.sharing import access

register = template.Library()
register.simple_tag(access.address_of)


@register.simple_tag
def dataset_address(reference: str) -> str:
    """Return the address of a dataset that a job of the visitor reads: `name`, or `owner/name` of another user; of a
    version, where it names one.
    """
    owner, _slash, name = reference.rpartition("/")
    name, _at, version = name.partition("@")
    return access.address_of(owner or None, "dataset", name) + (f"?version={version}" if version else "")


@register.simple_tag(takes_context=True)
def address(context: dict, row: Model, page: str = "", *args: str) -> str:
    """Return the address of an object's page: the short one for its owner, for others the one with its owner in it."""
    user = context["request"].user
    return access.address(row, page, *args, own=user.is_authenticated and row.user_id == user.pk)
