"""The data client of a user id that has no home directory, as in many containers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from datasets.client_build import build
from mlp.tests.patience import LIMIT_S

NO_HOME = "error: no home directory; set HOME or XDG_CONFIG_HOME\n"
NO_LOGIN = "error: not logged in; run 'data_client.pyz login', or set --token or MLP_TOKEN\n"


@pytest.mark.parametrize(("verb", "says"), [("login", NO_HOME), ("list", NO_LOGIN)])
def test_nothing_is_written_beside_the_caller(tmp_path, verb, says):
    (here := tmp_path / "here").mkdir()
    (client := tmp_path / "data_client.pyz").write_bytes(build())
    # `~` is what Python makes of the home of a user id that has none.
    environment = {"PATH": os.environ["PATH"], "HOME": "~", "MLP_URL": "http://127.0.0.1:9"}
    command = [sys.executable, str(client), "--patience", "1", verb]
    done = subprocess.run(
        command, cwd=here, env=environment, input="alice\nsecret\n", capture_output=True, text=True, timeout=LIMIT_S
    )
    assert (done.stderr, list(here.iterdir())) == (says, [])
