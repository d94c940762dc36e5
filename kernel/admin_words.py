"""What the administrators' pages say of a verb: done, not possible, and why."""

from __future__ import annotations

from django import forms
from django.db.models import Model
from django.utils.translation import gettext

from .admin_display import state_name
from .errors import Refused
from .messages import translate
from .pages import why_not


def reason_of(verb, obj: Model) -> str:
    """Return why the object's lifecycle would refuse a verb that its state allows; "" where it would not."""
    return why_not(lambda: verb.check(obj))


def not_now(verb, obj: Model) -> str:
    values = {"verb": verb.label, "object": obj, "state": state_name(obj)}
    if values["state"]:
        return gettext("%(verb)s: not possible, %(object)s is %(state)s") % values
    return gettext("%(verb)s: not possible for %(object)s") % values


def done_text(verb, obj: Model) -> str:
    values = {"verb": verb.label, "object": obj, "state": state_name(obj)}
    if verb.transition:
        return gettext("%(verb)s: %(object)s is now %(state)s") % values
    return gettext("%(verb)s: done for %(object)s") % values


def changed_values(form: forms.Form | None) -> str:
    """Return the changed form values for the log; never a password."""
    names = form.changed_data if form else []
    shown = [name for name in names if not isinstance(form.fields[name].widget, forms.PasswordInput)]
    return ", ".join(f"{name} {form.cleaned_data.get(name)}" for name in shown)


def show_refusal(form: forms.Form, refused: Refused) -> None:
    """Show a refusal at the field it names, else above the form."""
    if refused.field in form.fields:
        form.add_error(refused.field, translate(refused.problem))
    else:
        form.add_error(None, translate(refused.msg))
