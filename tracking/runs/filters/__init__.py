"""Filter expressions over runs: `loss < 0.1 and lr = 0.01 and tag = baseline`.

kernel.filters parses the text into a tree, `compiling` turns the tree into a condition of the ORM. Every error is a
`FilterError` with the column of the problem.
"""

from kernel.filters.grammar import FilterError, parse

from .compiling import Scope, condition

__all__ = ["FilterError", "Scope", "condition", "parse"]
