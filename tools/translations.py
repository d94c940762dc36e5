"""Brings the catalogue of translations up to date with the source: `python tools/translations.py`.

Finds the strings of templates and Python files, writes them into locale/*/LC_MESSAGES/django.po beside the words that
are there already, and compiles the .mo that Django reads. The strings that still need words are listed at the end;
write these into the .po and run it again. Needs nothing but Django: no gettext programs. Used by developers and by
mlp/tests/test_translations.py.

    --check   changes nothing; the exit status is 1 when there is something to do
    --prune   forgets the words of strings that are no longer in the source (else they are kept as `#~` lines)
"""

from __future__ import annotations

import ast
import re
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from django.conf import settings  # noqa: E402
from django.utils.translation.template import templatize  # noqa: E402

LEFT_OUT = {"tests", "migrations", "locale", "examples", "bench", "tools", "test-artifacts", "var", "node_modules"}
FUNCTIONS = {"gettext", "gettext_lazy", "gettext_noop", "ngettext", "ngettext_lazy"} | {
    "pgettext", "pgettext_lazy", "npgettext", "npgettext_lazy",
}  # fmt: skip
STRING = r"""u?("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
IN_TEMPLATE = re.compile(rf"(?<!\w)(_|n?p?gettext)\(\s*{STRING}(?:,\s*{STRING})?(?:,\s*{STRING})?", re.DOTALL)
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
HEADER = """Project-Id-Version: ML platform
Language: {language}
MIME-Version: 1.0
Content-Type: text/plain; charset=UTF-8
Content-Transfer-Encoding: 8bit
Plural-Forms: {plural}
"""
PLURALS = {"zh_Hans": (1, "nplurals=1; plural=0;")}

Key = tuple[str, str]  # (context or "", msgid)


@dataclass
class Message:
    """One entry of the catalogue."""

    context: str
    id: str
    plural: str = ""
    words: list[str] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    obsolete: bool = False

    @property
    def key(self) -> Key:
        return self.context, self.id

    @property
    def translated(self) -> bool:
        return bool(self.words) and all(self.words) and "fuzzy" not in self.flags


# --- what the source says ------------------------------------------------------------------------------------------
def source_files() -> list[Path]:
    """The product's own templates and Python files."""
    found = []
    for top in sorted(ROOT.iterdir()):
        if top.name.startswith(".") or top.name in LEFT_OUT:
            continue
        paths = [top] if top.is_file() else sorted(top.rglob("*"))
        for path in paths:
            parts = path.relative_to(ROOT).parts
            if path.suffix in {".py", ".html", ".txt"} and path.is_file() and not LEFT_OUT & set(parts):
                found.append(path)
    return [path for path in found if path.suffix == ".py" or "templates" in path.parts]


def strings() -> dict[Key, Message]:
    """Every translatable string of the source, and of the admin's theme."""
    found: dict[Key, Message] = {("", text): Message("", text) for text in OF_THE_THEME}
    for path in source_files():
        text = path.read_text()
        for message in in_python(text) if path.suffix == ".py" else in_template(text):
            known = found.setdefault(message.key, message)
            known.plural = known.plural or message.plural
    return found


def in_python(text: str) -> list[Message]:
    """The literal arguments of Django's translating functions, under whatever names they were imported."""
    tree = ast.parse(text)
    names = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation"
        for alias in node.names
        if alias.name in FUNCTIONS
    }
    found = []
    for node in ast.walk(tree):
        called = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
        function = names.get(called, called if called in FUNCTIONS else "")
        if function and all(isinstance(arg, ast.Constant) for arg in node.args[: _literals(function)]):
            found.append(_message(function, [arg.value for arg in node.args[: _literals(function)]]))
    return found


def in_template(text: str) -> list[Message]:
    found = []
    for match in IN_TEMPLATE.finditer(templatize(text)):
        function = "gettext" if match[1] == "_" else match[1]
        given = [ast.literal_eval(literal) for literal in match.groups()[1:] if literal]
        found.append(_message(function, given[: _literals(function)]))
    return found


def _literals(function: str) -> int:
    return 1 + function.startswith(("n", "p")) + function.startswith("np")


def _message(function: str, given: list[str]) -> Message:
    context = given.pop(0) if function.startswith(("p", "np")) else ""
    return Message(context, given[0], given[1] if len(given) > 1 else "")


def placeholders(text: str) -> list[str]:
    """What stands for values in the text; the translation needs the very same, in whatever order."""
    return sorted(PLACEHOLDER.findall(text))


# --- the .po file --------------------------------------------------------------------------------------------------
def read_po(path: Path) -> dict[Key, Message]:
    """The entries of a .po file, also the obsolete ones; without its header."""
    found: dict[Key, Message] = {}
    blocks = re.split(r"\n\s*\n", path.read_text()) if path.exists() else []
    for block in blocks:
        message, at = Message("", ""), ""
        values: dict[str, str] = {}
        for line in block.splitlines():
            if line.startswith("#~ "):
                message.obsolete, line = True, line[3:]
            if line.startswith("#,"):
                message.flags |= {flag.strip() for flag in line[2:].split(",")}
            elif match := re.match(r'(msg\w+(?:\[\d\])?) (".*")$', line):
                at = match[1]
                values[at] = ast.literal_eval(match[2])
            elif line.startswith('"'):
                values[at] += ast.literal_eval(line)
        message.context, message.id = values.pop("msgctxt", ""), values.pop("msgid", "")
        message.plural = values.pop("msgid_plural", "")
        message.words = [value for name, value in sorted(values.items()) if name.startswith("msgstr")]
        message.flags -= {"python-format"}
        if message.id:
            found[message.key] = message
    return found


def write_po(messages: list[Message], language: str) -> str:
    header = ["# The platform's pages in another language; tools/translations.py writes and compiles this file.", *[
        'msgid ""', 'msgstr ""', *[_quoted(line + "\n") for line in _header(language).splitlines()]
    ]]  # fmt: skip
    blocks = ["\n".join(header)]
    for message in sorted(messages, key=lambda one: (one.obsolete, one.id.casefold(), one.id, one.context)):
        lines = [f"msgctxt {_quoted(message.context)}"] if message.context else []
        lines.append(f"msgid {_quoted(message.id)}")
        if message.plural:
            lines.append(f"msgid_plural {_quoted(message.plural)}")
            lines += [f"msgstr[{index}] {_quoted(words)}" for index, words in enumerate(message.words)]
        else:
            lines.append(f"msgstr {_quoted(message.words[0])}")
        if message.obsolete:
            lines = ["#~ " + line for line in lines]
        flags = message.flags | ({"python-format"} if re.search(r"%\(\w+\)|%s", message.id) else set())
        blocks.append("\n".join(([f"#, {', '.join(sorted(flags))}"] if flags else []) + lines))
    return "\n\n".join(blocks) + "\n"


def _header(language: str) -> str:
    return HEADER.format(language=language, plural=PLURALS[language][1])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def merged(old: dict[Key, Message], new: dict[Key, Message], language: str, prune: bool = False) -> list[Message]:
    """The strings of the source with the words that are known, then (unless pruned) the words no longer needed."""
    found = []
    for key, message in new.items():
        known = old.get(key)
        forms = PLURALS[language][0] if message.plural else 1
        words = (known.words if known else [])[:forms]
        message.words = words + [""] * (forms - len(words))
        message.flags = known.flags - {"python-format"} if known else set()
        found.append(message)
    if not prune:
        for key, message in old.items():
            if key not in new and message.translated:
                message.obsolete = True
                found.append(message)
    return found


# --- the .mo file --------------------------------------------------------------------------------------------------
def compiled(messages: list[Message], language: str) -> bytes:
    """The .mo file: what is translated, as GNU gettext's msgfmt would write it (without the hash table)."""
    pairs = {b"": _header(language).encode()}
    for message in messages:
        if message.translated and not message.obsolete:
            key = (f"{message.context}\x04" if message.context else "") + message.id
            key += f"\0{message.plural}" if message.plural else ""
            pairs[key.encode()] = "\0".join(message.words).encode()
    ids = sorted(pairs)
    data, tables = b"", ([], [])
    start = 28 + 16 * len(ids)
    for table, texts in zip(tables, (ids, [pairs[id] for id in ids]), strict=True):
        for text in texts:
            table += [len(text), start + len(data)]
            data += text + b"\0"
    numbers = [0x950412DE, 0, len(ids), 28, 28 + 8 * len(ids), 0, 28 + 16 * len(ids), *tables[0], *tables[1]]
    return struct.pack(f"<{len(numbers)}I", *numbers) + data


# --- the command ---------------------------------------------------------------------------------------------------
def main(arguments: list[str]) -> int:
    if not settings.configured:
        settings.configure(USE_I18N=True)
    todo = False
    for language in PLURALS:
        folder = ROOT / "locale" / language / "LC_MESSAGES"
        messages = merged(read_po(folder / "django.po"), strings(), language, "--prune" in arguments)
        files = {
            folder / "django.po": write_po(messages, language).encode(),
            folder / "django.mo": compiled(messages, language),
        }
        changed = [path for path, data in files.items() if not path.exists() or path.read_bytes() != data]
        if "--check" not in arguments:
            folder.mkdir(parents=True, exist_ok=True)
            for path in changed:
                path.write_bytes(files[path])
        used = [message for message in messages if not message.obsolete]
        missing = [message for message in used if not message.translated]
        wrong = [
            message for message in used for words in message.words
            if words and placeholders(words) != placeholders(message.plural or message.id)
        ]  # fmt: skip
        print(f"{language}: {len(used)} strings, {len(missing)} need words, {len(messages) - len(used)} obsolete")
        for title, rows in (("needs words", missing), ("other placeholders", wrong)):
            for message in rows:
                print(f"  {title}: {message.context and message.context + ' | '}{message.id!r}")
        todo = todo or bool(missing or wrong or ("--check" in arguments and changed))
    return 1 if todo else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
