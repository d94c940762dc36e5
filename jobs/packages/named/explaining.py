"""Which package an installation has failed at, and why, in pip's words."""

from __future__ import annotations

import re

from jobs.packages import silence
from kernel.messages import Message

NAMES = r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^\]\s]*\])?(?:[<>=!~]=?[^\s;,()'\"]+)?)"
# In the order in which they are looked for: pip says several of them of one failure.
CAUSES = (
    (r"(?:CERTIFICATE_VERIFY_FAILED|certificate verify failed)()",
     Message("the certificate of the index is not trusted")),
    (r"Retrying \(Retry\(total=0\b[^\n]*after connection broken by()", Message("the index cannot be reached")),
    (rf"requirement {NAMES}[^\n]*\(from versions: none\)", Message("the index has no package of this name")),
    (rf"THESE PACKAGES DO NOT MATCH THE HASHES[^\n]*\n(?:[^\n]*\n)*?\s*{NAMES}[^\n]* from ",
     Message("the file does not match its checksum")),
    (r"Requires-Python [^\n]*(?:\n[^\n]*)*No matching distribution found for (?P<package>[^\s;]+)",
     Message("its releases are for another version of Python")),
    (r"No matching distribution found for (?P<package>[^\s;]+)", Message("the index has no such version")),
    (r"Cannot install (?P<package>[^\n]+?) because these package versions have conflicting dependencies",
     Message("these packages exclude each other")),
    (r"Failed building wheel for (?P<package>[^\s]+)", Message("it has no wheel, and could not be built")),
    (r"Failed to build (?:installable wheels for some pyproject.toml based projects \()?'?(?P<package>[^\s')]+)",
     Message("it has no wheel, and could not be built")),
    (r"Collecting (?P<package>[^\s;]+)(?:(?!\nCollecting )[\s\S])*"
     r"(?:metadata-generation-failed|subprocess-exited-with-error|git clone)",
     Message("it could not be built from its source")),
    (r"No space left on device()", Message("there is no space left")),
)  # fmt: skip


def culprit(log: str) -> tuple[str, str]:
    """Return the package that pip's output blames and why, ("", "") where it names none."""
    if silent := silence.of_index(log):
        return "", silent
    for pattern, why in CAUSES:
        if match := re.search(pattern, log):
            package = match.groupdict().get("package") or ""
            return package[:200], Message("%(package)s: %(why)s", package=package[:200], why=why) if package else why
    return "", ""
