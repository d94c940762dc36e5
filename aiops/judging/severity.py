"""The severity of a log line, as its sender named it: the names that senders use for the same thing are one."""

from __future__ import annotations

NAMES = {
    "error": ("error", "err", "fatal", "critical", "crit", "alert", "emerg", "emergency", "panic", "severe"),
    "warning": ("warning", "warn"),
    "info": ("info", "information", "informational", "notice"),
    "debug": ("debug", "trace", "verbose", "fine", "finer", "finest"),
}
# https://opentelemetry.io/docs/specs/otel/logs/data-model/#field-severitynumber
NUMBERS = {"error": range(17, 25), "warning": range(13, 17), "info": range(9, 13), "debug": range(1, 9)}
KEYS = ("severity", "level", "detected_level", "severity_text", "log.level")
KIND = {name: kind for kind, names in NAMES.items() for name in names}
KIND |= {str(number): kind for kind, numbers in NUMBERS.items() for number in numbers}
MAX = 20  # characters that are shown


def severity_of(attributes: dict | None) -> tuple[str, str]:
    """Return (kind, text) of a line's severity: one of NAMES or "", and what the sender wrote; ("", "") for none."""
    for key in KEYS if attributes else ():
        text = str(attributes.get(key) or "").strip()
        if text:
            return KIND.get(text.lower(), ""), text[:MAX]
    return "", ""


def clause(wanted: str) -> dict:
    """Return the condition of the log store on lines of that severity: a kind with all its names, else the text."""
    values = [wanted]
    if wanted in NAMES:
        values = [form for name in NAMES[wanted] for form in (name, name.upper(), name.capitalize())]
        values += [str(number) for number in NUMBERS[wanted]]
    by_key = [{"terms": {f"attributes.{key}": values}} for key in KEYS]
    return {"bool": {"should": by_key, "minimum_should_match": 1}}
