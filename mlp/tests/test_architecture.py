"""The structure, kept by a test: who may import whom, how long files and functions are (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
LEVELS = {
    "mlp.environment": 0,
    "mlp.admin_theme": 0,
    "mlp.kernel": 1,
    "mlp.runners": 2,
    "accounts": 3,
    "resources": 3,
    "datasets": 4,
    "jobs": 5,
    "models_app": 6,
    "apps": 7,
    "aiops": 8,
    "mlp": 9,
}
# aiops has a plan of its own (docs/architecture.md): services, a model and adapters beside the usual files.
APPS = ("accounts", "resources", "datasets", "jobs", "models_app", "apps")
AIOPS_MAY = {0, 1, 2, 3}  # aiops stands beside the platform's objects, not on them
LAYERS = [
    {"models"},
    {"copying", "loading", "ports", "sources"},
    {"auth", "tokens", "throttle", "environment", "lifecycle", "launching", "notices", "sessions"}
    | {"tcc", "inventory", "units", "rows", "limits", "usage", "books"},
    {
        "serializers",
        "trying",
        "traffic",
        "metrics",
        "series",
        "usage_series",
        "logs",
        "feed",
        "kafka_source",
        "nats_auth",
        "delivery",
    },
    {
        "api",
        "metrics_api",
        "series_api",
        "compare",
        "pages",
        "file_pages",
        "settings_pages",
        "notice_admin",
        "gateway",
        "orphans",
        "admin",
        "actors",
        "reconcile",
        "consumers",
        "ingest",
        "client_build",
    },
    {"urls", "data_urls", "gateway_urls"},
]
APP_FILES = {name for layer in LAYERS for name in layer} | {"apps", "__init__"}
MAX_LINES = 400
MAX_FUNCTION = 60


def sources() -> list[Path]:
    roots = [
        ROOT / name for name in ("mlp", "accounts", "resources", "datasets", "jobs", "models_app", "apps", "aiops")
    ]
    found = [path for root in roots if root.is_dir() for path in root.rglob("*.py")]
    return sorted(path for path in [*found, ROOT / "manage.py", ROOT / "conftest.py"] if path.is_file())


def is_test(path: Path) -> bool:
    return "tests" in path.parts or path.name == "conftest.py"


def product() -> list[Path]:
    return [path for path in sources() if not is_test(path) and "migrations" not in path.parts]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


OURS = {module_name(path) for path in sources()}


def imports(path: Path, nodes=None) -> set[str]:
    """The modules of our own that the file imports, whole names."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    found = set()
    for node in nodes if nodes is not None else ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{stem}.{alias.name}"
                found.add(whole if whole in OURS else stem)
    return {name for name in found if name in OURS}


def level(module: str) -> int:
    known = [prefix for prefix in LEVELS if module == prefix or module.startswith(prefix + ".")]
    return LEVELS[max(known, key=len)] if known else 9


@pytest.mark.parametrize("path", product(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards_only(path):
    mine, own_level = module_name(path), level(module_name(path))
    for other in imports(path):
        same_house = mine.split(".")[0] == other.split(".")[0] and level(other) == own_level
        if same_house:
            continue
        allowed = AIOPS_MAY if mine.startswith("aiops") else set(range(own_level))
        assert level(other) in allowed, f"{mine} (level {own_level}) imports {other} (level {level(other)})"


@pytest.mark.parametrize("app", APPS)
def test_layers_inside_an_app(app):
    rank = {f"{app}.{name}": index for index, layer in enumerate(LAYERS) for name in layer}
    for path in (ROOT / app).glob("*.py"):
        mine = module_name(path)
        if mine not in rank:
            continue
        for other in imports(path):
            if other in rank:
                assert rank[other] <= rank[mine], f"{mine} imports {other}, which is above it"


def test_app_files_have_agreed_names():
    for app in APPS:
        for path in (ROOT / app).glob("*.py"):
            assert path.stem in APP_FILES, f"{path.relative_to(ROOT)}: add the name to LAYERS, or use one that is there"


def test_there_is_no_circle():
    graph = {module_name(path): imports(path) for path in product()}
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, "circle: " + " > ".join([*way[way.index(module) :], module])
        if module in done:
            return
        for other in graph.get(module, ()):
            # a package's __init__ that gathers its own modules is no circle
            if not (other != module and module.startswith(other + ".")):
                visit(other, (*way, module))
        done.add(module)

    for module in graph:
        visit(module, ())


def test_no_function_imports_our_own_code():
    for path in sources():
        for function in ast.walk(tree(path)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = imports(path, ast.walk(function))
                assert not inner, f"{path.relative_to(ROOT)}: {function.name} imports {inner} inside"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    if "migrations" in path.parts:
        return
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_LINES, f"{lines} lines"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", product(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is(path):
    if path.read_text().strip():
        assert ast.get_docstring(tree(path)), "no docstring"


def test_state_is_changed_by_transitions_only():
    """`update(state=…)` would pass by the table, the lock and the history."""
    for path in product():
        assert not re.search(r"\.update\([^)]*\bstate=", path.read_text()), path


def test_tasks_are_enqueued_after_the_commit_only():
    for path in product():
        if path.name != "after_commit.py":
            assert not re.search(r"\.send(_with_options)?\(\s*(pk|job|dataset)", path.read_text()), path


def test_transitions_are_called_by_lifecycles_only():
    """Everything that moves an object goes through one door per app."""
    verbs = {"complete", "finish", "fail", "erase", "start", "activate", "deregister"}
    for path in product():
        if path.stem in {"lifecycle", "models", "tcc"}:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in verbs:
                by = {keyword.arg for keyword in node.keywords}
                owner = ast.unparse(node.func.value)
                assert owner in {"lifecycle", "metrics", "accounts", "runners"} or "by" not in by, (
                    f"{path.relative_to(ROOT)}:{node.lineno} calls {owner}.{node.func.attr}"
                )
