"""The architecture rules, a test for each: allowed imports, lengths of files and functions.

The layers themselves are data, in layers.py; docs/architecture.md explains them.
"""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings
from django.urls import get_resolver

from . import layers

ROOT = Path(settings.BASE_DIR)
PACKAGES = sorted({package.split(".")[0] for level in layers.LEVELS for package in level.packages})
MAX_LINES = 400
MAX_FUNCTION = 60

# How the docstring of a function may begin. Add a verb when none of these fits.
VERBS = """
    Accept Account Acknowledge Act Activate Add Adjust Admit Announce Answer Append Apply Approve Ask Assign Attempt
    Authenticate Become Begin Bring Call Cancel Change Check Close Commit Compare Complete Compute Confirm Connect
    Continue Convert Copy Count Create Deactivate Decorate Delay Delete Deliver Deploy Detach Do Download Drop Edit
    Empty End Enqueue Erase Execute Export Fail Fetch Finish Fire Follow Forget Fork Format Forward Give Grant Handle
    Have Ignore Import Index Insert Invalidate Invite Join Judge Keep Kill Learn Let Limit Link List Load Lock Log Make
    Mark Mask Match Measure Move Name Notify Open Order Parse Patch Pause Poll Prepare Prevent Preview Print Prompt
    Publish Pull Put Raise Read Record Redirect Refresh Refuse Register Release Remember Remove Rename Render Renew
    Repair Repeat Replace Report Reserve Reset Restart Restore Restrict Retry Return Revoke Run Sample Save Schedule
    Score Send Serve Set Share Show Signal Skip Sleep Start Stop Store Stream Submit Subscribe Subtract Take Tell
    Terminate Train Translate Truncate Try Turn Unregister Unsubscribe Update Upload Use Validate Wait Watch Work Wrap
    Write Yield
"""


def sources() -> list[Path]:
    inside = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    return sorted([*inside, ROOT / "manage.py", ROOT / "conftest.py"])


def is_test(path: Path) -> bool:
    return "tests" in path.parts or path.name == "conftest.py"


def product() -> list[Path]:
    return [path for path in sources() if not is_test(path) and "migrations" not in path.parts]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def statements_of(path: Path) -> list[ast.AST]:
    """Return the statements of a file, whatever they are in. Most nodes are expressions, which are not gone through."""
    found, left = [], [tree(path)]
    while left:
        found.append(node := left.pop())
        for block in BLOCKS:
            left += getattr(node, block, ())
    return found


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Forget the trees after these tests: the garbage collector would go through them during all later ones."""
    yield
    for each in (imports, statements_of, tree):
        each.cache_clear()


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


OURS = {module_name(path) for path in sources()}


@cache
def imports(path: Path, inside: tuple[int, int] | None = None) -> set[str]:
    """Return the modules of our own that the file imports, by their whole names; `inside`, between these lines."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    modules = set()
    for node in statements_of(path):
        if inside and not inside[0] <= getattr(node, "lineno", 0) <= inside[1]:
            continue
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{stem}.{alias.name}"
                modules.add(whole if whole in OURS else stem)
    return {name for name in modules if name in OURS}


def say(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_list_of_files_is_not_empty():
    """With an empty list of files, the rules below would pass."""
    assert len(product()) > 300
    assert sum(len(imports(path)) for path in product()) > 1000


def test_no_folder_with_tests_is_left_out():
    """pytest runs what pyproject.toml names, and says nothing of the rest."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    assert {path.relative_to(ROOT).parts[0] for path in sources() if path.name.startswith("test_")} == set(named)


def test_imports_go_downwards_only():
    wrong = []
    for path in product():
        mine, own = module_name(path), layers.level_of(module_name(path))
        allowed = layers.AIOPS_MAY if mine.startswith("aiops") else set(range(own))
        for other in imports(path):
            level = layers.level_of(other)
            same_package = mine.split(".")[0] == other.split(".")[0] and level == own
            if not same_package and level not in allowed:
                wrong.append(f"{mine} (level {own}) imports {other} (level {level})")
    assert wrong == []


def test_layers_inside_an_app():
    wrong = []
    for app in layers.APPS:
        rank = {f"{app}.{name}": index for index, names in enumerate(layers.FILES) for name in names}
        for path in (ROOT / app).glob("*.py"):
            mine = module_name(path)
            wrong += [
                f"{mine} imports {other}, which is above it"
                for other in imports(path)
                if rank.get(other, 0) > rank.get(mine, len(layers.FILES))
            ]
    assert wrong == []


def test_folders_inside_an_app():
    """`aiops/wire` does not import `aiops/web`: a folder imports only those before it in layers.ROOMS."""
    wrong = []
    for app, rooms in layers.ROOMS.items():
        rank = {f"{app}.{room}": index for index, room in enumerate(rooms)}

        def place(module: str, rank=rank) -> int | None:
            return rank.get(".".join(module.split(".")[:2]))

        for path in product():
            mine = module_name(path)
            if place(mine) is None:
                continue
            above = [other for other in imports(path) if (place(other) or 0) > place(mine)]
            wrong += [f"{mine} imports {other}, which is above it" for other in above]
    assert wrong == []


def test_app_files_have_agreed_names():
    files = [path for app in layers.APPS for path in (ROOT / app).glob("*.py") if not is_test(path)]
    odd = [say(path) for path in files if path.stem not in layers.APP_FILES]
    assert odd == [], "use a name that layers.FILES has, or add it there"


def test_the_table_in_the_documentation_is_made_from_the_layers():
    page = ROOT / "docs" / "architecture.md"
    assert runpy.run_path(str(ROOT / "tools" / "architecture.py"))["render"](page.read_text()) == page.read_text(), (
        "run: python tools/architecture.py"
    )


def test_the_addresses_that_templates_name_exist():
    names = set(get_resolver().reverse_dict)
    tag = re.compile(r"""\{%\s*(?:url|address \S+|address_of \S+) ['"](\w+)['"]""")
    for path in sorted((ROOT / "templates").rglob("*.html")):
        unknown = set(tag.findall(path.read_text())) - names
        assert not unknown, f"{say(path)}: {unknown}"


def test_there_is_no_import_cycle():
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
        at = [node.col_offset for node in statements_of(path) if isinstance(node, ast.Import | ast.ImportFrom)]
        for function in statements_of(path) if any(at) else ():  # where all begin their line, none is in a function
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = imports(path, (function.lineno, function.end_lineno))
                assert not inner, f"{path.relative_to(ROOT)}: {function.name} imports {inner} inside"


def test_files_are_short():
    lengths = {say(path): len(path.read_text().splitlines()) for path in sources() if "migrations" not in path.parts}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_functions_are_short():
    long = [
        f"{say(path)}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in sources()
        if "migrations" not in path.parts
        for node in statements_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= MAX_FUNCTION
    ]
    assert long == []


def test_every_module_has_a_docstring():
    silent = [say(path) for path in product() if path.read_text().strip() and not ast.get_docstring(tree(path))]
    assert silent == []


def is_named_by_a_noun(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the docstring may begin with a noun or a state: that of a property or of a transition."""
    names = {ast.unparse(decorator).partition("(")[0].rpartition(".")[2] for decorator in function.decorator_list}
    return bool(names & {"property", "cached_property", "transition"})


def test_docstrings_of_functions_begin_with_a_verb_in_the_imperative():
    """As in "Return the …", not "Returns the …", "The …" or "Whether …"."""
    others = [path for name in ("bench", "examples", "tools") for path in (ROOT / name).rglob("*.py")]
    begins = {
        f"{say(path)}:{node.lineno} {node.name}": re.match(r"\w*", docstring)[0]
        for path in [*product(), *others]
        for node in statements_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_named_by_a_noun(node)
        if (docstring := ast.get_docstring(node)) is not None
    }
    assert len(begins) > 1000
    allowed = VERBS.split()
    wrong = {function: word for function, word in begins.items() if word not in allowed}
    assert wrong == {}, "begin with one of VERBS, or add your verb there"


def test_state_is_changed_by_transitions_only():
    """`update(state=…)` or `update(phase=…)` would bypass the transitions, the lock and the history."""
    for path in product():
        assert not re.search(r"\.update\([^)]*\b(state|phase)=", path.read_text()), path


def test_tasks_are_enqueued_after_the_commit_only():
    for path in product():
        if path.name != "after_commit.py":
            assert not re.search(r"\.send(_with_options)?\(\s*(pk|job|dataset)", path.read_text()), path


def test_transitions_are_called_by_lifecycles_only():
    """Each app has one module that changes the states of its objects; runs without a process have a second one."""
    verbs = {"complete", "finish", "fail", "erase", "start", "resume", "activate", "deregister"}
    for path in product():
        if path.stem in {"lifecycle", "client_runs", "models", "tcc"}:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in verbs:
                by = {keyword.arg for keyword in node.keywords}
                owner = ast.unparse(node.func.value)
                assert owner in {"lifecycle", "metrics", "accounts", "runners"} or "by" not in by, (
                    f"{path.relative_to(ROOT)}:{node.lineno} calls {owner}.{node.func.attr}"
                )
