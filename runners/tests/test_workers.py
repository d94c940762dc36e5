"""Runs with several workers on one machine: torchrun's variables, one log, one end; with confinement."""

from __future__ import annotations

import sys

import pytest

from mlp.tests.tiers import later
from runners.local import LocalRunner

from .helpers import end_of, spec

SUM = """
import torch, torch.distributed as group
torch.set_num_threads(1)
group.init_process_group("gloo")
total = torch.ones(1) * (group.get_rank() + 1)
group.all_reduce(total)
print("rank", group.get_rank(), "of", group.get_world_size(), "sum", total.item())
group.destroy_process_group()
"""

# What torch.distributed does, by a socket.
MEET = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
def joined():
    while True:
        try:
            return socket.create_connection(place)
        except ConnectionRefusedError:
            time.sleep(0.01)
if rank == 0:
    with socket.create_server(place) as server:
        peer = server.accept()[0]
        total = 1.0 + float(peer.recv(9))
        peer.sendall(str(total).encode())
else:
    peer = joined()
    peer.sendall(b"2.0")
    total = float(peer.recv(9))
print("rank", rank, "of", size, "sum", total)
"""


@pytest.fixture
def runner(tmp_path):
    local = LocalRunner(tmp_path / "runs")
    yield local
    assert local.stop_all(0) == []


@pytest.mark.parametrize("program", [MEET, later(SUM)], ids=["a socket", "torch.distributed"])
def test_two_workers_find_each_other_and_share_a_log(runner, tmp_path, program):
    runner.start(spec(tmp_path, "", command=[sys.executable, "-c", program], owner=3, workers=2, ram_mib=1000))
    assert end_of(runner).succeeded
    lines = (tmp_path / "job-1-1.log").read_text().splitlines()
    assert {f"[{rank}] rank {rank} of 2 sum 3.0" for rank in (0, 1)} <= set(lines)


def test_a_failing_worker_stops_the_others(runner, tmp_path):
    code = "import os, time\nif os.environ['RANK'] == '1': raise SystemExit(4)\nwhile True: time.sleep(1)"
    runner.start(spec(tmp_path, code, owner=3, workers=3, grace_s=0.5))
    status = end_of(runner)
    assert (status.exit_code, status.reason) == (4, "worker 1: exit code 4")
