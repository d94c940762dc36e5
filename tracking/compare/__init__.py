"""Comparison of runs: differences, best values, plots of arguments against metrics, diffs of logs."""
