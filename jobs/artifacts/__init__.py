"""Artifacts: files that programs store in the output folder of a run, below `artifacts/`. No HTTP here."""
