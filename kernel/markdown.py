"""Markdown that users write, as safe HTML for our pages. Used by the templates' filter `markdown`.

Two safeguards: the parser passes no HTML of the text on, and the result is cleaned to the few tags and addresses below.
Images are left out, since browsers would load them from other sites.
"""

from __future__ import annotations

from functools import cache

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

TAGS = {
    "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a",
    "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
SCHEMES = {"http", "https", "mailto"}
HEADINGS = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6"}  # the page has its own h1 and h2


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "linkify": False, "typographer": False}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable("image")


def render(text: str) -> SafeString:
    """Return the text as clean HTML; "" for no text."""
    tokens = _parser().parse(text)
    for token in tokens:
        token.tag = HEADINGS.get(token.tag, token.tag)
    dirty = _parser().renderer.render(tokens, _parser().options, {})
    clean = nh3.clean(
        dirty, tags=TAGS, attributes=ATTRIBUTES, url_schemes=SCHEMES, link_rel="nofollow noopener noreferrer"
    )
    return mark_safe(clean)
