"""The shipped rules for packages that could not be installed, in the words of uv or pip below the reason."""

from __future__ import annotations

from django.utils.translation import gettext_noop as noop

from jobs.models import Action

from .shipped import R, Shipped

FAILED = "its packages could not be installed"
SAID = rf"(?s){FAILED}.*"

PACKAGES = (
    Shipped(
        "packages_unreachable", R,
        SAID + r"(?:CERTIFICATE_VERIFY_FAILED|NewConnectionError|ConnectTimeout|ReadTimeoutError|ProxyError|"
        r"Name or service not known|Temporary failure in name resolution|Network is unreachable|Connection refused|"
        r"invalid peer certificate|Failed to fetch)",
        noop("The index of packages cannot be reached"),
        noop(
            "The platform could not connect to where packages come from, which an administrator sets "
            "(MLP_PIP_INDEX_URL). It "
            "may be down, or the network policy of the job excludes it."
        ),
        f"{FAILED}: exit code 1\nWARNING: Retrying after connection broken by 'NewConnectionError(...)': /simple/x/\n"
        "ERROR: No matching distribution found for x",
        Action.AGAIN,
    ),
    Shipped(
        "packages_version", R,
        SAID + r"(?:\(from versions: [^n)][^)]*\).*No matching distribution found for|there is no version of) "
        r"(?P<package>[^\s;,]+)",
        noop("There is no such version: %(package)s"),
        noop("The index has other versions for this Python. Ask for one of these."),
        f"{FAILED}: exit code 1\nERROR: Could not find a version that satisfies the requirement x==9 (from versions: "
        "1.0, 2.0)\nERROR: No matching distribution found for x==9",
        Action.FORM,
    ),
    Shipped(
        "packages_python", R, SAID + r"(?:Requires-Python |depends on Python)(?P<python>[^\s;,'\"]+)",
        noop("A package needs another Python"),
        noop(
            "Its releases are for Python %(python)s, which the platform does not have. Ask for another version of the "
            "package."
        ),
        f"{FAILED}: exit code 1\nERROR: Ignored the following versions that require a different python version: 2.0 "
        "Requires-Python >=3.12\nERROR: No matching distribution found for x==2.0",
        Action.FORM,
    ),
    Shipped(
        "packages_name", R, SAID + r"No matching distribution found for (?P<package>[^\s;]+)",
        noop("There is no such package: %(package)s"),
        noop(
            "The index has nothing that can be installed under the name %(package)s. Check the name: that of a package "
            "is often not that of the module (opencv-python for cv2)."
        ),
        f"{FAILED}: exit code 1\nERROR: Could not find a version that satisfies the requirement x (from versions: "
        "none)\nERROR: No matching distribution found for x",
        Action.FORM,
    ),
    Shipped(
        "packages_unknown", R, SAID + r"Because (?P<package>\S+) was not found in the p",
        noop("There is no such package: %(package)s"),
        noop(
            "The index has nothing that can be installed under the name %(package)s. Check the name: that of a package "
            "is often not that of the module (opencv-python for cv2)."
        ),
        f"{FAILED}: exit code 1\n  cause: Because x was not found in the package registry and you require x, we can "
        "conclude that your requirements are unsatisfiable.",
        Action.FORM,
    ),
    Shipped(
        "packages_wheel", R, SAID + r"\s(?P<package>[^\s,]+) has no wheels with a matching",
        noop("There is no wheel of %(package)s for this Python"),
        noop(
            "The index has it for other versions of Python or other machines only. Ask for another version of the "
            "package."
        ),
        f"{FAILED}: exit code 1\n  cause: Because x==1 has no wheels with a matching Python ABI tag (e.g., `cp311`)",
        Action.FORM,
    ),
    Shipped(
        "packages_conflict", R, SAID + r"(?:ResolutionImpossible|conflicting dependencies|are unsatisfiable)",
        noop("The packages exclude each other"),
        noop("No versions of them can be installed together; they are named below. Ask for wider ranges of versions."),
        f"{FAILED}: exit code 1\nERROR: Cannot install x and y because these package versions have conflicting "
        "dependencies.",
        Action.FORM,
    ),
    Shipped(
        "packages_build", R,
        SAID + r"(?:Failed building wheel|Failed to build|Failed to download and build|metadata-generation-failed|"
        r"subprocess-exited-with-error)",
        noop("A package could not be built"),
        noop(
            "It has no wheel for this Python and this machine, so it was compiled, which failed for the reason below. "
            "Ask for a version that has a wheel."
        ),
        f"{FAILED}: exit code 1\nerror: metadata-generation-failed",
        Action.FORM,
    ),
    Shipped(
        "packages", R, FAILED,
        noop("The packages could not be installed"),
        noop("The last lines of the installation are below the reason."),
        f"{FAILED}: exit code 2", Action.FORM,
    ),
)  # fmt: skip
