"""Which package an installation has failed at, and why, by the words of uv and of pip."""

from __future__ import annotations

import re

from kernel.messages import Message

from . import silence

NAMES = r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^\]\s]*\])?(?:[<>=!~]=?[^\s;,()'\"]+)?)"
# In the order in which they are looked for: uv and pip say several of them of one failure.
CAUSES = (
    (r"(?:CERTIFICATE_VERIFY_FAILED|certificate verify failed|invalid peer certificate)()",
     Message("the certificate of the index is not trusted")),
    (r"Retrying \(Retry\(total=0\b[^\n]*after connection broken by()", Message("the index cannot be reached")),
    (r"hint: An index[^\n]*(?:401 Unauthorized|403 Forbidden)()",
     Message("the index refuses access; an administrator sets its user and password")),
    (r"Hash mismatch for `(?P<package>[^`]+)`", Message("the file does not match its checksum")),
    (r"no trusted hash was provided for: `?(?P<package>[^\s`]+)", Message("its checksum is missing")),
    (r"Failed to (?:build|download and build) `(?P<package>[^`\s@]+)",
     Message("it could not be built from its source")),
    (r"Failed to download `(?P<package>[^`\s@]+)[^\n]*\n\s+cause: Failed to extract", Message("its file is damaged")),
    (r"Failed to download `(?P<package>[^`\s@]+)", Message("its file cannot be downloaded")),
    (r"Because (?P<package>\S+) has an invalid package format", Message("its file is damaged")),
    (r"Failed to fetch()", Message("the index cannot be reached")),
    (r"Because (\S+) was not found in the p[^\n]*you require (?P<package>\1[^\s,]*)",
     Message("the index has no package of this name")),
    (r"(?P<package>\S+) was not found in the p", Message("the index has no package of this name")),
    (r"there are no versions of (?P<package>[^\s,]+)", Message("the index has no package of this name")),
    (r"(?P<package>[^\s,]+) has no wheels with a matching",
     Message("it has no wheel for this Python and this machine")),
    (r"(?P<package>[^\s,]+) depends on Python\S*", Message("its releases are for another version of Python")),
    (r"there is no version of (?P<package>[^\s,]+)", Message("the index has no such version")),
    (r"Because (?:all versions of )?(?P<package>[^\s,]+) depends? on"
     r"(?:[\s\S]*And because you require (?P<other>[^\s,]+), we can conclude that your requirements)?",
     Message("these packages exclude each other")),
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
    """Return the package that the installer's output blames and why, ("", "") where it names none."""
    if silent := silence.of_index(log):
        return "", silent
    for pattern, why in CAUSES:
        if match := re.search(pattern, log):
            named = match.groupdict()
            package = " and ".join(filter(None, [named.get("package"), named.get("other")]))[:200]
            return package, Message("%(package)s: %(why)s", package=package, why=why) if package else why
    return "", ""
