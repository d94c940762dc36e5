"""Which faults are put in: cosmic-ray's operators, chosen so that few are alike, and two of our own.

Cosmic-ray has no operator that removes a statement or a keyword argument, but these are the likely faults of code
with transactions and locks: a forgotten `save()`, a missing `enqueue`, a lock without its mode.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import Keyword

PAIRS = {
    "Comparison": "Eq_NotEq NotEq_Eq Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt Is_IsNot IsNot_Is",
    "Binary": "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul "
    "BitAnd_BitOr BitOr_BitAnd BitXor_BitAnd LShift_RShift RShift_LShift",
    "Unary": "Delete_Not USub_UAdd Invert_UAdd",
}
WORDS = (
    "AddNot ExceptionReplacer NumberReplacer RemoveDecorator ZeroIterationForLoop ReplaceAndWithOr ReplaceOrWithAnd "
    "ReplaceBreakWithContinue ReplaceContinueWithBreak ReplaceFalseWithTrue ReplaceTrueWithFalse"
)


class RemoveStatement(Operator):
    """Puts `pass` in the place of a simple statement of a function."""

    def mutation_positions(self, node):
        if node.type == "simple_stmt" and node.children[0].type not in {"string", "import_name", "import_from"}:
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node, index):
        first = node.children[0].get_first_leaf()
        node.children[0] = Keyword("pass", first.start_pos, first.prefix)
        return node

    @classmethod
    def examples(cls):
        return (Example("save()\n", "pass\n"),)


class RemoveKeywordArgument(Operator):
    """Leaves out one `name=value` of a call.

    Not `update_fields`: the verbs save rows that they hold locked, so what a save of all fields writes besides is what
    is there already.
    """

    def mutation_positions(self, node):
        for child in self._keywords(node):
            yield child.start_pos, child.end_pos

    def mutate(self, node, index):
        place = node.children.index(self._keywords(node)[index])
        behind = node.type == "arglist" and place + 1 < len(node.children)
        first = place - (node.type == "arglist" and place > 0 and not behind)
        del node.children[first : first + (2 if node.type == "arglist" else 1)]
        return node

    @staticmethod
    def _keywords(node) -> list:
        if node.type not in {"arglist", "trailer"}:
            return []
        named = (child for child in node.children if child.type == "argument" and child.children[1] == "=")
        return [child for child in named if child.children[0].value != "update_fields"]

    @classmethod
    def examples(cls):
        return (Example("lock(a, no_key=True)", "lock(a)"), Example("call(by=1)", "call()"))


def operators() -> dict[str, Operator]:
    """Return the operators in use by their names."""
    known = OperatorProvider()
    names = [f"Replace{kind}Operator_{pair}" for kind, pairs in PAIRS.items() for pair in pairs.split()]
    return {name: known[name]() for name in [*names, *WORDS.split()]} | {
        "RemoveStatement": RemoveStatement(),
        "RemoveKeywordArgument": RemoveKeywordArgument(),
    }


@dataclass(frozen=True)
class Mutant:
    """One fault: an occurrence of an operator in a file, with the lines whose tests can notice it."""

    path: Path
    operator: str
    occurrence: int
    line: int
    lines: tuple[int, int]

    @cached_property
    def source(self) -> str:
        """The file's text with the fault in it."""
        return mutate_code(self.path.read_text(), operators()[self.operator], self.occurrence)

    @property
    def name(self) -> str:
        return f"{self.path.name}:{self.line} {self.operator} {self.occurrence}"

    def diff(self) -> str:
        """Return the changed lines, `-` before and `+` after."""
        lines = difflib.unified_diff(self.path.read_text().splitlines(), self.source.splitlines(), n=0, lineterm="")
        return "\n".join(list(lines)[3:])


def mutants_of(path: Path) -> list[Mutant]:
    """Return every fault to try in the file, in order of lines. Each of them compiles, to another program."""
    text = path.read_text()
    extent = Extent(ast.parse(text))
    before = program(text)
    mutants = []
    for name, operator in operators().items():
        for occurrence, position in enumerate(_positions(text, operator)):
            lines = extent.judged(name, position)
            if lines is None:
                continue
            mutant = Mutant(path, name, occurrence, position[0], lines)
            try:
                if program(mutant.source) != before:
                    mutants.append(mutant)
            except SyntaxError:
                continue
    return sorted(mutants, key=lambda mutant: (mutant.line, mutant.operator, mutant.occurrence))


def program(source: str) -> list[tuple]:
    """Return what the source compiles to, without places in the text. Equal for a `return` left out at the end."""
    todo, parts = [compile(source, "", "exec")], []
    for code in todo:
        inner = [value for value in code.co_consts if isinstance(value, CodeType)]
        values = [(type(value), value) for value in code.co_consts if not isinstance(value, CodeType)]
        parts.append((code.co_name, code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames, values))
        todo += inner
    return parts


def _positions(text: str, operator: Operator) -> Iterator[tuple[int, int]]:
    for node in ast_nodes(get_ast(text)):
        for start, _end in operator.mutation_positions(node):
            yield start


class Extent:
    """What of a file is judged: bodies and defaults of functions, and constants of the module.

    Annotations are not evaluated, what is logged is not promised, and class bodies are declarations for Django.
    """

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self.left_out = [span(node) for node in self._unjudged()]
        self.sums = [span(node) for node in ast.walk(tree) if isinstance(node, ast.BinOp | ast.AugAssign)]
        self.functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        self.statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]

    def _unjudged(self) -> Iterator[ast.AST]:
        for node in ast.walk(self.tree):
            yield from (getattr(node, name) for name in ("annotation", "returns") if getattr(node, name, None))
            if isinstance(node, ast.ClassDef):
                yield from node.decorator_list
                yield from (child for child in node.body if not isinstance(child, ast.FunctionDef))
            elif isinstance(node, ast.Expr) and ast.unparse(node).startswith("log."):
                yield node
        for node in self.tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.ClassDef):
                yield node

    def judged(self, operator: str, position: tuple[int, int]) -> tuple[int, int] | None:
        """Return the lines whose running concerns a fault at that place, (0, 0) for the whole module, None for none."""
        if any(start <= position < end for start, end in self.left_out):
            return None
        if "Binary" in operator and not any(start <= position < end for start, end in self.sums):
            return None  # the `*` of a signature
        around = [node for node in self.functions if first_line(node) <= position[0] <= node.end_lineno]
        if not around and operator == "RemoveStatement":
            return None
        if not around:
            return None if isinstance(self._statement(position[0]), ast.ClassDef) else (0, 0)
        inner = self._statement(position[0])
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            return first_line(inner), inner.end_lineno
        body = getattr(inner, "body", None)
        return inner.lineno, max(inner.lineno, body[0].lineno - 1) if body else inner.end_lineno

    def _statement(self, line: int) -> ast.stmt:
        around = [node for node in self.statements if first_line(node) <= line <= node.end_lineno]
        return min(around, key=lambda node: (node.end_lineno - first_line(node), -node.col_offset))


def span(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def first_line(node: ast.AST) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
