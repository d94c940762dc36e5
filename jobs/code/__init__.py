"""The code of jobs: the script's folder is snapshotted when a job is submitted, and each run uses that snapshot."""
