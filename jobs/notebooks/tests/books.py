"""Notebooks for the tests."""

from __future__ import annotations

import json


def cell(source, kind: str = "code", **more) -> dict:
    """Return a cell as tools write it that know nothing of ids, outputs or metadata."""
    return {"cell_type": kind, "source": source, **more}


def book(*cells: dict | str, minor: int = 4, **metadata) -> str:
    """Return the text of a notebook; a text is the source of a code cell."""
    whole = [cell(each) if isinstance(each, str) else each for each in cells]
    return json.dumps({"nbformat": 4, "nbformat_minor": minor, "metadata": metadata, "cells": whole})
