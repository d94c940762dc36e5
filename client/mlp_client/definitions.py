"""A sweep, a pipeline or a schedule in a file, YAML or JSON: its scripts are sent, and it names where they are then.

The file stays as it was written, since no YAML is read here: only the values of `entry` and of the first `name` change.
"""

from __future__ import annotations

import json
import os
import re

from . import sending
from .checkout import Checkout
from .connection import Rest
from .texts import tr
from .transfer.errors import LOCAL, USAGE, Failure

# A quoted scalar; or a plain one, which ends at the line's end, at a comment, or at what ends it within braces.
VALUE = (
    r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'"""
    r"""|[^\s"'#,{}\[\]](?:[^#,{}\[\]\n]|(?<=\S)#)*?(?=[ \t]*(?:$|[ \t]#|[,{}\[\]]))"""
)
ENTRY = re.compile(r"""(?P<key>(?:^|(?<=[\s{,-]))["']?entry["']?[ \t]*:[ \t]+)(?P<value>""" + VALUE + ")", re.MULTILINE)
ENTRY_OF_JSON = re.compile(r"""(?P<key>"entry"\s*:\s*)(?P<value>"(?:[^"\\\n]|\\.)*")""")
NAME = re.compile(r"""^(?P<key>name[ \t]*:[ \t]+)(?P<value>""" + VALUE + ")", re.MULTILINE)
MOST = 1 << 20


class Definition:
    """A definition: `text` as it is sent, `kind` its media type, `name` that of the object. Raises Failure."""

    def __init__(self, path: str, name: str = ""):
        try:
            with open(path, encoding="utf-8-sig") as file:
                self.text = file.read(MOST)
        except (OSError, ValueError) as problem:
            raise Failure(LOCAL, tr("{file} cannot be read: {problem}", file=path, problem=problem))
        self.path, self.is_json = path, self.text.lstrip()[:1] == "{"
        try:
            self.is_json = self.is_json and isinstance(json.loads(self.text), dict)
        except ValueError:
            self.is_json = False  # YAML in braces
        self.kind = "application/json" if self.is_json else "application/yaml"
        if name:
            self._rename(name)
        self.name = self._name()

    def _rename(self, name: str) -> None:
        if self.is_json:
            self.text = json.dumps({**json.loads(self.text), "name": name})
        elif NAME.search(self.text):
            self.text = NAME.sub(lambda match: match.group("key") + name, self.text, count=1)
        elif self.text.lstrip()[:1] == "{":
            raise Failure(USAGE, tr("{file}: --name needs YAML without braces, or JSON", file=self.path))
        else:
            self.text = f"name: {name}\n{self.text}"

    def without_name(self) -> None:
        """Remove the name, which an address names already."""
        if self.is_json:
            self.text = json.dumps({key: value for key, value in json.loads(self.text).items() if key != "name"})
        else:
            self.text = NAME.sub("", self.text, count=1)

    def _name(self) -> str:
        if self.is_json:
            return str(json.loads(self.text).get("name") or "")
        match = NAME.search(self.text)
        return unquoted(match.group("value")) if match else ""

    def scripts(self) -> dict:
        """Return the scripts that are files of this machine, beside the definition: {what it calls them: path}."""
        beside, paths = os.path.dirname(self.path), {}
        for match in self._entries().finditer(self.text):
            entry = unquoted(match.group("value"))
            if os.path.isfile(os.path.join(beside, entry)):
                paths[entry] = os.path.join(beside, entry)
        return paths

    def send(self, rest: Rest, options, say) -> None:
        """Send the checkout that the scripts are in, and name them as they are there. A script that is no file here is
        one that the platform has. Raises Failure.
        """
        scripts = self.scripts()
        if not scripts:
            say(tr("no script of {file} is a file here; those of the platform are used", file=self.path))
            return
        checkout = Checkout(list(scripts.values()), options.root or "", say)
        places = dict(zip(scripts, sending.send(rest, checkout, options.quiet, say).places))  # noqa: B905 (3.10)

        def place(match) -> str:
            """Return the key with the place of its script."""
            entry = unquoted(match.group("value"))
            return match.group("key") + (json.dumps(places[entry]) if entry in places else match.group("value"))

        self.text = self._entries().sub(place, self.text)

    def _entries(self):
        return ENTRY_OF_JSON if self.is_json else ENTRY

    def post(self, rest: Rest, path: str, method: str = "POST", expect=()):
        """Send the definition; return the response. Raises Failure."""
        headers = {"Content-Type": self.kind}
        return rest.web.call(method, rest.path(path), self.text.encode("utf-8"), headers, expect)


def unquoted(value: str) -> str:
    """Return the text of a scalar of YAML."""
    value = value.strip()
    if value[:1] == '"':
        try:
            return str(json.loads(value))
        except ValueError:
            return value[1:-1]
    return value[1:-1].replace("''", "'") if value[:1] == "'" else value
