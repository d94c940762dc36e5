"""Starts the program that scores a dataset. It is beside the code that answers requests, which the platform adds to the
run of a job that was created to score.
"""

import os
import runpy
import sys

SERVING = os.environ.get("MLP_SERVING")

if not SERVING:
    sys.exit(
        "only jobs that are created by scoring a dataset can run this: see Score a dataset on an application's page"
    )
sys.path.insert(0, SERVING)
sys.argv = [
    "batch.py",
    *("--model", os.environ["MLP_SCORING_MODEL"], "--name", os.environ["MLP_SCORING_NAME"]),
    *("--data", os.path.join(os.environ["MLP_DATASETS"], os.environ["MLP_SCORING_DATASET"])),
    *("--out", os.path.join(os.environ["MLP_WORKSPACE"], "scored")),
    *(["--chat"] if os.environ.get("MLP_SCORING_CHAT") else []),
]
runpy.run_path(os.path.join(SERVING, "batch.py"), run_name="__main__")
