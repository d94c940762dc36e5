"""A field of a form: `{% load fields %}`."""

from __future__ import annotations

from django import template

register = template.Library()


@register.inclusion_tag("_field.html", takes_context=True)
def field(
    context, name: str, label: str, value="", *, id: str = "", part: str = "", help: str = "", error: bool = True,
    plain: bool = False, **attributes,
) -> dict:  # fmt: skip
    """Render an input with its label, the problem of the field where the page has one, and a help text.

    `part` is its share of the row (f3 of twelve, for example). Other attributes are the input's; an underscore in their
    names is a hyphen, and True is an attribute without a value. `plain` is for names and the like, which a browser is
    not to change.
    """
    id = id or name
    problems = getattr(context.get("problems"), "fields", {})  # none before the form was sent
    text = problems.get(name) if error else None
    described = " ".join(f"{id}-{what}" for what, there in (("error", text), ("help", help)) if there)
    given = {"type": attributes.pop("type", None), "value": "" if value is None else value, **attributes}
    if plain:
        given |= {"autocapitalize": "none", "spellcheck": "false"}
    if described:
        given["aria_describedby"] = described
    if text:
        given |= {"aria_invalid": "true", "autofocus": True}
    shown = [
        (key.replace("_", "-"), attribute)
        for key, attribute in given.items()
        if attribute is not None and attribute != ""
    ]
    return {
        "id": id, "name": name, "label": label, "part": part, "help": help, "text": text,
        "attributes": [(key, attribute) for key, attribute in shown if attribute is not False],
    }  # fmt: skip
