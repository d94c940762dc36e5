"""The rows that summarise runs: their parameters, and the last, lowest and highest values of their metrics."""
