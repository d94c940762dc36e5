"""The accuracy that is quick to measure, where labelled logs are available (MLP_BENCH_DATA); the rest is in bench."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

DATA = os.environ.get("MLP_BENCH_DATA", "")


@pytest.mark.skipif(not DATA or not Path(DATA).is_dir(), reason="no labelled logs: MLP_BENCH_DATA is not set")
def test_session_detection_reaches_its_minimum():
    command = [sys.executable, "bench/aiops_quality.py", "--only", "hdfs", "--data", DATA]
    done = subprocess.run(command, cwd=settings.BASE_DIR, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reached" in done.stdout


@pytest.mark.long
def test_without_labelled_logs_nothing_is_measured():
    environment = {name: value for name, value in os.environ.items() if name != "MLP_BENCH_DATA"}
    command = [sys.executable, "bench/aiops_quality.py"]
    done = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    assert "nothing was measured" in done.stdout
