"""Which direction of a metric is better: by its project's goals, else by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping

LESS = re.compile(
    r"loss|err|error|mse|mae|rmse|mape|perplexity|ppl|wer|cer|fid|nll|bpc|bpb|distance|latency|seconds|time|regret",
    re.IGNORECASE,
)


def best_of(name: str, goals: Mapping[str, str]) -> str:
    """Return "min" or "max": the column of run_metric with the best value of a metric."""
    chosen = goals.get(name)
    if chosen in ("min", "max"):
        return chosen
    words = re.split(r"[^A-Za-z]+", name)
    return "min" if any(LESS.fullmatch(word) or word.lower().endswith("loss") for word in words) else "max"
