"""The snippets that connect a client: the programs of examples/mlflow, each in the forms in which it is pasted.

The page Connect shows them, docs/mlflow.md has the first, and the tests run them.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import NamedTuple

from django.conf import settings
from django.utils.translation import gettext_lazy as _

FOLDER = settings.BASE_DIR / "examples" / "mlflow"
LINE = "PYTHON"  # ends the program in a shell


class Library(NamedTuple):
    """A library that speaks MLflow: its snippet's program, and the packages that this needs."""

    key: str
    label: str
    program: str
    packages: str


class Place(NamedTuple):
    """Where a snippet is pasted."""

    key: str
    label: str


class Text(NamedTuple):
    """A snippet, without the token that is between both parts. `after` is empty where none is needed."""

    before: str
    after: str = ""

    def whole(self, token: str) -> str:
        return f"{self.before}{token}{self.after}" if self.after else self.before


LIBRARIES = (
    Library("mlflow", "MLflow", "plain.py", "mlflow"),
    Library("sklearn", "scikit-learn", "forest.py", "mlflow scikit-learn"),
    Library("lightning", "Lightning", "lit.py", "mlflow lightning"),
    Library("transformers", "transformers", "trainer.py", "mlflow transformers accelerate torch"),
    Library("keras", "Keras", "dense.py", "mlflow keras torch"),
    Library("xgboost", "XGBoost", "boosting.py", "mlflow xgboost scikit-learn"),
)
PLACES = (
    Place("bash", _("Terminal")),
    Place("python", _("Python script")),
    Place("notebook", _("Notebook")),
    Place("job", _("Job on this platform")),
)


@cache
def program(library: Library) -> str:
    """Return the library's program without its docstring."""
    text = (FOLDER / library.program).read_text()
    docstring = ast.parse(text).body[0]
    return "".join(text.splitlines(keepends=True)[docstring.end_lineno :]).strip() + "\n"


def text(library: Library, place: str, address: str) -> Text:
    """Return the snippet for a platform at that address. A job has address and token in its environment."""
    code, install = program(library), f"pip install -q {library.packages}"
    if place == "job":
        return Text(code)
    if place == "bash":
        head = f"python3 -m {install}\nexport MLFLOW_TRACKING_URI={address}/mlflow\nexport MLFLOW_TRACKING_TOKEN="
        return Text(head, f"\npython3 - <<'{LINE}'\n{code}{LINE}\n")
    first = f"%{install}\n" if place == "notebook" else f"# {install}\n"
    variables = f'import os\n\nos.environ["MLFLOW_TRACKING_URI"] = "{address}/mlflow"\n'
    rest = f'"\n\n{code.removeprefix("import os").lstrip()}'
    return Text(f'{first}{variables}os.environ["MLFLOW_TRACKING_TOKEN"] = "', rest)
