"""The store of log lines and verdicts: one interface (base.py), an adapter for each kind of store."""

from __future__ import annotations

from .base import LogStore, clean, get, placed

__all__ = ["LogStore", "clean", "get", "placed"]
