"""Why a run ended, as a template with parameters, which the platform translates (kernel.messages reads it).

The shim runs without the platform's code, so a message is plain JSON here: {"template", "params"}, whose params are
texts, numbers and messages again. Used by the shim, its guard and its limits.
"""

from __future__ import annotations

Reason = dict | str  # a plain text is the operating system's message, which is not translated


def message(template: str, **params) -> dict:
    """Return a message; tools/translations.py finds the template by this function's name."""
    return {"template": template, "params": params}


def text(reason: Reason) -> str:
    """Return the English sentence."""
    if isinstance(reason, str):
        return reason
    params = {name: text(value) if isinstance(value, dict) else value for name, value in reason["params"].items()}
    return reason["template"] % params if params else reason["template"]


def end_reason(code: int) -> Reason:
    """Return the message of an exit code, or of a signal (below zero)."""
    if code >= 0:
        return message("exit code %(code)s", code=code)
    return message("killed by signal %(number)s (%(name)s)", number=-code, name=signal_name(-code))


def signal_name(number: int) -> str:
    import signal  # the guard does not need it, see `suppress.py`

    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"
