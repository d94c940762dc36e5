"""Types of GPUs: which products of a vendor are meant by a name such as `a100`. Pure.

A product is what the driver or the label of a node calls it, with hyphens for spaces: `NVIDIA-A100-SXM4-80GB`. A name
means the products of which it is a part, by whole words: `a100-80gb` and `A100` mean that one, `a10` does not. What is
only a part of a GPU (a MIG slice, a shared GPU) is meant only by names that say so: `mig`, `1g.5gb`, `shared`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MAX_LENGTH = 63
NAME = re.compile(rf"[A-Za-z0-9]([A-Za-z0-9 ._-]{{0,{MAX_LENGTH - 2}}}[A-Za-z0-9])?")
DIVIDED = {"mig", "shared"}
Named = Mapping[str, tuple[str, ...]]  # the products that an administrator has given a name


def product_of(name: str) -> str:
    """Return the product of a name as a driver says it."""
    return re.sub(r"[\s/]+", "-", name.strip())


def is_meant(kind: str, product: str, named: Named) -> bool:
    """Return whether the name of a type means the product."""
    for name, products in named.items():
        if name.casefold() == kind.casefold():
            return product_of(product).casefold() in (product_of(each).casefold() for each in products)
    wanted, words = _words(kind), _words(product)
    part = next((index for index, word in enumerate(words) if word in DIVIDED), len(words))
    if words[part:] and not set(wanted) & set(words[part:]):
        return False
    return bool(wanted) and set(wanted) <= _runs(words)


def meant(kind: str, products: Iterable[str], named: Named) -> frozenset[str]:
    """Return those of the products that the name of a type means: all of them by an empty one."""
    return frozenset(each for each in products if not kind or (each and is_meant(kind, each, named)))


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9.]+", text.casefold()) if word]


def _runs(words: list[str]) -> set[str]:
    """Return the words, and those that are next to each other as one: rtx4090 of RTX-4090."""
    ends = range(1, len(words) + 1)
    return {"".join(words[begin:end]) for end in ends for begin in range(end)}
