"""A script that saves a checkpoint when it is stopped, and continues from it."""

from __future__ import annotations

# Counts to 5 in its checkpoint: stops at 2 in its first run, where it waits for the signal.
CONTINUES = """
import os, pathlib, signal, sys, time
file = pathlib.Path("ckpt/step")
step = int(file.read_text()) if file.exists() else 0
def save(*_):
    file.write_text(str(step))
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("run", os.environ["MLP_ATTEMPT"], "preempted", os.environ["MLP_PREEMPTIONS"], "from", step, flush=True)
while step < 5:
    step += 1
    while step == 2 and os.environ["MLP_PREEMPTIONS"] == "0":
        pathlib.Path("at-two").touch()
        time.sleep(0.02)
print("done", step)
"""
