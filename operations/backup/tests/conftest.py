"""A real S3 server for the tests: rclone's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import free_port, start

RCLONE = shutil.which("rclone", path=str(Path(sys.executable).parent))
KEY, SECRET = "the-key", "the-secret-of-the-key"


@pytest.fixture(scope="session")
def s3(tmp_path_factory) -> dict[str, str]:
    """Yield the environment that reaches a server with the bucket `kept`."""
    if RCLONE is None:
        pytest.skip("rclone has no wheel for this kind of machine")
    folder, port = tmp_path_factory.mktemp("s3"), free_port()
    (folder / "buckets" / "kept").mkdir(parents=True)
    address = f"127.0.0.1:{port}"
    command = [RCLONE, "serve", "s3", str(folder / "buckets"), "--addr", address, "--auth-key", f"{KEY},{SECRET}"]
    process = start(folder, "s3", [*command, "--config", "/dev/null"], port)
    yield {"AWS_ENDPOINT_URL": f"http://{address}", "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    process.terminate()
    process.wait(LIMIT_S)
