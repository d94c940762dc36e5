"""Bring the catalogues of translations up to date with the source: `python tools/translations.py`.

Babel extracts the strings of the Python files and templates, merges them into locale/*/LC_MESSAGES/django.po beside the
translations that are there already, and compiles the .mo that Django reads. The strings that still need a translation
are listed at the end; write it into the .po and run this again. Used by developers and mlp/tests/test_translations.py.

    --check   change nothing; the exit status is 1 when there is something to do
    --prune   forget the translations of strings that are no longer in the source (else they are kept as `#~` lines)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from babel.messages import Catalog
from babel.messages.catalog import Message
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import PoFileParser, write_po

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from django.conf import settings  # noqa: E402
from django.utils.translation.template import templatize  # noqa: E402

LANGUAGES = ("zh_Hans",)
LEFT_OUT = {"tests", "migrations", "locale", "examples", "bench", "tools", "test-artifacts", "var", "node_modules"}
CONTEXT_THEN_TEXT, PLURAL = ((1, "c"), 2), (1, 2)
DJANGO = {
    "_": None, "noop": None, "gettext": None, "gettext_lazy": None, "gettext_noop": None,
    "ngettext": PLURAL, "ngettext_lazy": PLURAL,
    "pgettext": CONTEXT_THEN_TEXT, "pgettext_lazy": CONTEXT_THEN_TEXT,
    "npgettext": ((1, "c"), 2, 3), "npgettext_lazy": ((1, "c"), 2, 3),
}  # fmt: skip
# What gives a message to a caller or stores one (kernel.messages): the first literal is its template.
MESSAGES = {
    "Message": None, "Refused": None, "TooMany": None, "WrongState": None, "OverLimit": None, "Fault": None,
    "Invalid": None, "RunnerError": None, "NoGpus": None, "NoAnswer": None, "refused": None, "message": None,
    "Slow": None, "HttpError": (2,),
}  # fmt: skip
CALLED = re.compile(rf"\b({'|'.join({**DJANGO, **MESSAGES})})\s*\(")  # without any, there is nothing to extract
KEPT_HEADERS = {"Project-Id-Version", "Language", "Plural-Forms", "MIME-Version", "Content-Type"}
PLACEHOLDER = re.compile(r"%\(\w+\)[sdifg]|%%|%[sdifgr]|\{\w*\}")
# What the admin's theme, which comes without any translation, shows on our pages.
OF_THE_THEME = (
    "Add row", "All applications", "Apply Filters", "Choose file to upload", "Click to cancel", "Click to download",
    "Date", "Expand row", "False", "General", "Go back", "Loading more results...", "More actions", "Next", "No data",
    "No recent searches", "No results found", "No results matching your query", "Previous", "Recent searches",
    "Reset filters", "Return to site", "Search apps and models...", "Select action", "Select action to run",
    "Select all rows", "Select record", "Select value", "Submit", "System", "Toggle password visibility", "True",
    "This page yielded into no results. Create a new item or reset your filters.", "Type to search", "Welcome",
    "Welcome back to", "You have been successfully logged out from the administration",
)  # fmt: skip


# --- what the source says ------------------------------------------------------------------------------------------
def source_files() -> list[Path]:
    """Return the product's own templates and Python files."""
    files = []
    for top in sorted(ROOT.iterdir()):
        if top.name.startswith(".") or top.name in LEFT_OUT:
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and not LEFT_OUT & set(path.relative_to(ROOT).parts):
                files.append(path)
    return [path for path in files if path.suffix == ".py" or (path.suffix == ".html" and "templates" in path.parts)]


def strings() -> Catalog:
    """Return every translatable string of the source, and of the admin's theme."""
    catalog = Catalog()
    for text in OF_THE_THEME:
        catalog.add(text)
    for path in source_files():
        text = path.read_text()
        for context, text_or_plural in in_python(text) if path.suffix == ".py" else in_template(text):
            catalog.add(text_or_plural, context=context)
    return catalog


def in_python(text: str) -> Iterator[tuple[str | None, str | tuple[str, str]]]:
    """Yield (context, text or (singular, plural)) of each literal that is translated, or is a message's template."""
    if not CALLED.search(text):  # to take a file to pieces takes long
        return
    for _line, texts, _comments, context in extract("python", BytesIO(text.encode()), {**DJANGO, **MESSAGES}):
        if has_words(texts[0] if isinstance(texts, tuple) else texts):
            yield context, texts


def in_template(text: str) -> Iterator[tuple[str | None, str | tuple[str, str]]]:
    """Yield the same of a template, which Django turns into lines of Python calls."""
    calls = "\n".join(line.strip() for line in templatize(text).splitlines())
    for _line, texts, _comments, context in extract("python", BytesIO(calls.encode()), DJANGO):
        yield context, texts


def has_words(template: str) -> bool:
    """Return whether there is anything to translate besides placeholders and punctuation."""
    return re.search(r"[^\W\d_]", PLACEHOLDER.sub("", template)) is not None


def placeholders(text: str) -> list[str]:
    """Return the placeholders of the text; a translation has the very same, in any order."""
    return sorted(PLACEHOLDER.findall(text))


# --- the catalogue -------------------------------------------------------------------------------------------------
def folder(language: str) -> Path:
    """Return where the catalogue's two files are."""
    return ROOT / "locale" / language / "LC_MESSAGES"


class SteadyCatalog(Catalog):
    """A catalogue whose header has no dates and names, so that the same translations give the same files."""

    def _kept(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self._get_mime_headers() if name in KEPT_HEADERS]

    mime_headers = property(_kept, Catalog._set_mime_headers)


def read(language: str, data: bytes) -> Catalog:
    """Return the catalogue that a .po file describes."""
    catalog = SteadyCatalog(locale=language, project="ML platform")
    PoFileParser(catalog).parse(BytesIO(data))
    return catalog


def catalogue(language: str) -> Catalog:
    """Return the catalogue as it is in the .po file."""
    return read(language, (folder(language) / "django.po").read_bytes())


def merged(catalog: Catalog, source: Catalog, prune: bool = False) -> Catalog:
    """Bring the catalogue up to date with the strings of the source, and return it."""
    for message in list(catalog.obsolete.values()):  # one that is used again
        catalog[message.id] = message
    catalog.obsolete.clear()
    catalog.update(source, no_fuzzy_matching=True, update_header_comment=False, update_creation_date=False)
    for key, message in list(catalog.obsolete.items()):
        if prune or not is_translated(message):
            del catalog.obsolete[key]
    return catalog


def used(catalog: Catalog) -> list[Message]:
    """Return the catalogue's messages without its header and what is obsolete."""
    return [message for message in catalog if message.id]


def is_translated(message: Message) -> bool:
    """Return whether all forms of the message have a translation."""
    return all(forms(message)) and not message.fuzzy


def forms(message: Message) -> tuple[str, ...]:
    """Return the translations of the message, one for each plural form."""
    return message.string if isinstance(message.string, tuple) else (message.string,)


def source_of(message: Message) -> str:
    """Return the English text; of a plural message the plural."""
    return message.id[-1] if isinstance(message.id, tuple | list) else message.id


def as_po(catalog: Catalog) -> bytes:
    """Return the .po file, sorted, a line for each text, without line numbers of the source."""
    data = BytesIO()
    write_po(data, catalog, width=0, no_location=True, sort_output=True)
    return data.getvalue()


def as_mo(catalog: Catalog) -> bytes:
    """Return the compiled catalogue: the same bytes for the same translations."""
    data = BytesIO()
    write_mo(data, catalog)
    return data.getvalue()


# --- the command ---------------------------------------------------------------------------------------------------
def main(arguments: list[str]) -> int:
    """Update, or with --check only compare, every language's files. Return 1 when something is left to do."""
    if not settings.configured:
        settings.configure(USE_I18N=True)
    todo = False
    for language in LANGUAGES:
        catalog = merged(catalogue(language), strings(), "--prune" in arguments)
        changed = False
        for name, data in (("django.po", as_po(catalog)), ("django.mo", as_mo(catalog))):
            path = folder(language) / name
            if not path.exists() or path.read_bytes() != data:
                changed = True
                if "--check" not in arguments:
                    path.write_bytes(data)
        missing = [message for message in used(catalog) if not is_translated(message)]
        wrong = [
            message
            for message in used(catalog)
            for text in forms(message)
            if text and placeholders(text) != placeholders(source_of(message))
        ]
        print(f"{language}: {len(used(catalog))} strings, {len(missing)} without a translation")
        for title, messages in (("needs a translation", missing), ("other placeholders", wrong)):
            for message in messages:
                print(f"  {title}: {message.context + ' | ' if message.context else ''}{message.id!r}")
        todo = todo or bool(missing or wrong or ("--check" in arguments and changed))
    return 1 if todo else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
