"""Puts a changed source into a module that is already loaded, so that no process has to begin for each fault.

The functions keep their identity and get the new code: modules that imported them run it. Used in a forked process,
which ends afterwards; nothing is put back.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from types import FunctionType, ModuleType
from typing import Any

PLAIN = (bool, int, float, str, bytes, tuple, frozenset, set, list, dict, datetime, timedelta)


def install(module: ModuleType, source: str) -> None:
    """Make the loaded module run `source`. Raises what the source raises when it is loaded."""
    names = ("__name__", "__package__", "__file__", "__spec__", "__builtins__")
    fresh = {name: vars(module)[name] for name in names}
    exec(compile(source, module.__file__, "exec"), fresh)
    for name, old in list(vars(module).items()):
        if name in names or name not in fresh:
            continue
        new = fresh[name]
        if isinstance(old, type) and old.__module__ == module.__name__:
            for attribute, inner in list(vars(old).items()):
                if attribute in vars(new) and not _graft(module, inner, vars(new)[attribute]):
                    setattr(old, attribute, _rebuilt(module, vars(new)[attribute]))
        elif isinstance(old, PLAIN) and type(old) is type(new) and old != new:
            _rebind(name, old, new)
        elif not _graft(module, old, new):
            _rebind(name, old, _rebuilt(module, new))


def _graft(module: ModuleType, old: Any, new: Any) -> bool:
    """Give the function behind `old` the code of `new`. False where it is our function and must be replaced instead."""
    old, new = _bare(old), _bare(new)
    if not _is_ours(module, old):
        return True
    if hasattr(old, "__wrapped__") != hasattr(new, "__wrapped__"):  # a decorator has gone
        return False
    while hasattr(old, "__wrapped__"):
        old, new = old.__wrapped__, new.__wrapped__
    if len(old.__code__.co_freevars) != len(new.__code__.co_freevars):
        return False
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    return True


def _is_ours(module: ModuleType, value: Any) -> bool:
    value = getattr(value, "__wrapped__", value)
    return isinstance(value, FunctionType) and value.__code__.co_filename == module.__file__


def _rebuilt(module: ModuleType, new: Any) -> Any:
    """Return the function with the globals of the loaded module, which the tests may change."""
    new = _bare(new)
    function = FunctionType(new.__code__, vars(module), new.__name__, new.__defaults__, new.__closure__)
    function.__kwdefaults__ = new.__kwdefaults__
    return function


def _bare(value: Any) -> Any:
    """Return the function of a method's or property's wrapper."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return value.fget if isinstance(value, property) else value


def _rebind(name: str, old: Any, new: Any) -> None:
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)
