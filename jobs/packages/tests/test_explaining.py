"""What a failed installation blames, by the words that pip prints."""

from __future__ import annotations

import pytest

from jobs.packages.named import explaining

NONE = """ERROR: Could not find a version that satisfies the requirement colours==1.0 (from versions: none)
ERROR: No matching distribution found for colours==1.0"""
RETRYING = "WARNING: Retrying (Retry(total=4, connect=None, read=None, status=None)) after connection broken by "


@pytest.mark.parametrize(
    ("log", "package", "why"),
    [
        (NONE, "colours==1.0", "the index has no package of this name"),
        (NONE.replace("none", "0.1, 0.2"), "colours==1.0", "the index has no such version"),
        (f"{RETRYING}'NewConnectionError(': Connection refused')': /simple/colours/\n{NONE}", "",
         "the index cannot be reached"),
        (f"{RETRYING}'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify "
         f"failed: unable to get local issuer certificate (_ssl.c:992)'))': /simple/colours/\n{NONE}", "",
         "the certificate of the index is not trusted"),
        ("ERROR: Ignored the following versions that require a different python version: 1.0 Requires-Python >=3.13\n"
         + NONE.replace("none", "0.1"), "colours==1.0", "its releases are for another version of Python"),
        ("ERROR: Cannot install hues==1 and shades because these package versions have conflicting dependencies.",
         "hues==1 and shades", "these packages exclude each other"),
        ("  ERROR: Failed building wheel for colours\nFailed to build colours", "colours",
         "it has no wheel, and could not be built"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "",
         "there is no space left"),
        ("Killed", "", ""),
    ],
)  # fmt: skip
def test_the_package_and_the_cause_are_named(log, package, why):
    assert explaining.culprit(log) == (package, f"{package}: {why}" if package else why)
