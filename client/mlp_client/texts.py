"""The messages in Chinese, chosen by LC_ALL, LC_MESSAGES or LANG. Anything else has them in English, as in the code."""

from __future__ import annotations

import os

from .chinese import TEXTS
from .transfer.progress import filled


def language() -> str:
    """Return `zh` or `en`, by the environment."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if os.environ.get(name):
            return "zh" if os.environ[name].lower().startswith("zh") else "en"
    return "en"


CHINESE = language() == "zh"


def tr(text: str, /, **values) -> str:
    """Return the message in the user's language, with its values filled in."""
    text = TEXTS.get(text, text) if CHINESE else text
    return filled(text, values) if values else text
