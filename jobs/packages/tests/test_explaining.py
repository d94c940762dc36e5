"""What a failed installation blames, by the words that uv and pip print."""

from __future__ import annotations

import pytest

from jobs.packages import explaining
from kernel.messages import translate

NONE = """ERROR: Could not find a version that satisfies the requirement colours==1.0 (from versions: none)
ERROR: No matching distribution found for colours==1.0"""
UNSOLVED = "error: No solution found when resolving dependencies\n  cause: "
REFUSED = (
    "error: Request failed after 2 retries in 5.4s\n  cause: Failed to fetch: "
    "https://wheels.example.org/simple/colours/\n  cause: error sending request for url "
    "(https://wheels.example.org/simple/colours/)\n  cause: client error (Connect)\n"
)
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
        # uv's
        (f"{UNSOLVED}Because there is no version of colours==9.9 and you require colours==9.9, we can conclude that",
         "colours==9.9", "the index has no such version"),
        (f"{UNSOLVED}Because there is no version of hues==0.2 and all versions of shades depend on hues==0.2, we can",
         "hues==0.2", "the index has no such version"),
        (f"{UNSOLVED}Because nothere was not found in the package registry and you require nothere, we can conclude",
         "nothere", "the index has no package of this name"),
        (f"{UNSOLVED}Because nothere was not found in the provided package locations and you require nothere, we can",
         "nothere", "the index has no package of this name"),
        (f"{UNSOLVED}Because nothere was not found in the package registry and you require nothere==9, we can conclude",
         "nothere==9", "the index has no package of this name"),
        (f"{UNSOLVED}Because nothere was not found in the package registry and all versions of hues depend on nothere,",
         "nothere", "the index has no package of this name"),
        (f"{UNSOLVED}Because the current Python version (3.11.2) does not satisfy Python>=3.13 and colours==2.0 "
         "depends on Python>=3.13, we can conclude that colours==2.0 cannot be used.",
         "colours==2.0", "its releases are for another version of Python"),
        (f"{UNSOLVED}Because colours==2.0 has no wheels with a matching Python implementation tag (e.g., `cp311`)",
         "colours==2.0", "it has no wheel for this Python and this machine"),
        (f"{UNSOLVED}Because all versions of clash depend on colours<2 and you require clash, we can conclude that you "
         "require colours<2.\n         And because you require colours==2.0, we can conclude that your requirements",
         "clash and colours==2.0", "these packages exclude each other"),
        (f"{UNSOLVED}Because nothere was not found in the package registry and you require nothere, we can conclude\n\n"
         "hint: An index URL (http://index.test/simple) could not be queried due to a lack of valid authentication "
         "credentials (401 Unauthorized)", "", "the index refuses access; an administrator sets its user and password"),
        (f"{REFUSED}  cause: tcp connect error\n  cause: Connection refused (os error 111)", "",
         "the index cannot be reached"),
        (f"{REFUSED}  cause: operation timed out", "",
         "the package index https://wheels.example.org/simple did not answer within 15 s, 3 times in a row"),
        ("error: Failed to fetch: https://127.0.0.1:18133/simple/colours/\n  cause: error sending request for url\n"
         "  cause: client error (Connect)\n  cause: invalid peer certificate: UnknownIssuer", "",
         "the certificate of the index is not trusted"),
        ("error: Failed to download `colours==1.0`\n  cause: Hash mismatch for `colours==1.0`\n\n         Expected:",
         "colours==1.0", "the file does not match its checksum"),
        ("error: Hash-checking is required, but no trusted hash was provided for: `hues`", "hues",
         "its checksum is missing"),
        ("error: Failed to download `hues==0.3`\n  cause: Failed to extract archive: hues-0.3-py3-none-any.whl\n"
         "  cause: Invalid zip file structure", "hues==0.3", "its file is damaged"),
        (f"{UNSOLVED}Because shades==1.0 has an invalid package format and only shades==1.0 is available, we can",
         "shades==1.0", "its file is damaged"),
        ("   Building broken==1.0\nerror: Failed to build `broken==1.0`\n  cause: The build backend returned an error",
         "broken==1.0", "it could not be built from its source"),
        ("error: Failed to download and build `meta @ git+https://git.test/meta`\n  cause: Git operation failed",
         "meta", "it could not be built from its source"),
        (f"error: Failed to download `x @ https://files.test/x-1.0-py3-none-any.whl`\n{REFUSED}  cause: dns error",
         "x", "its file cannot be downloaded"),
    ],
)  # fmt: skip
def test_the_package_and_the_cause_are_named(log, package, why, settings):
    settings.PIP_INDEX_URL = "https://reader:hush@wheels.example.org/simple"
    found, says = explaining.culprit(log)
    assert (found, str(translate(says))) == (package, f"{package}: {why}" if package else why)
