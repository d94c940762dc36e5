"""What a failed installation blames, by the words that pip prints."""

from __future__ import annotations

import pytest

from jobs.packages.named import explaining
from kernel.messages import translate

NONE = """ERROR: Could not find a version that satisfies the requirement colours==1.0 (from versions: none)
ERROR: No matching distribution found for colours==1.0"""
RETRYING = "WARNING: Retrying (Retry(total=0, connect=None, read=None, status=None)) after connection broken by "


@pytest.mark.parametrize(
    ("log", "package", "why"),
    [
        (NONE, "colours==1.0", "the index has no package of this name"),
        (NONE.replace("none", "0.1, 0.2"), "colours==1.0", "the index has no such version"),
        (f"{RETRYING}'NewConnectionError(': Connection refused')': /simple/colours/\n{NONE}", "",
         "the index cannot be reached"),
        (f"{RETRYING}'ReadTimeoutError(\"HTTPSConnectionPool(host='wheels.example.org', port=443): Read "
         f"timed out. (read timeout=15.0)\")': /simple/colours/\n{NONE}", "",
         "the package index https://wheels.example.org/simple did not answer within 15 s, 3 times in a row"),
        (f"{RETRYING}'ConnectTimeoutError(<HTTPConnection(host='far', port=80) at 0x7f>, 'Connection to "
         f"far timed out. (connect timeout=15.0)')': /simple/colours/\n{NONE}", "",
         "the package index far did not answer within 15 s, 3 times in a row"),
        ("pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='files.example.org', port=443): "
         "Read timed out.", "",
         "the package index files.example.org:443 did not answer within 15 s, 3 times in a row"),
        (f"{RETRYING.replace('0', '1')}'ReadTimeoutError(\"HTTPSConnectionPool(host='wheels.example.org', port=443): "
         f"Read timed out. (read timeout=15.0)\")': /simple/colours/\n{NONE.replace('none', '0.1, 0.2')}",
         "colours==1.0", "the index has no such version"),
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
def test_the_package_and_the_cause_are_named(log, package, why, settings):
    settings.PIP_INDEX_URL = "https://reader:hush@wheels.example.org/simple"
    found, says = explaining.culprit(log)
    assert (found, str(translate(says))) == (package, f"{package}: {why}" if package else why)
