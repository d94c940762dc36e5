"""The drawings of drift as rectangles of an SVG: a feature's two distributions, and the windows over time."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import DriftWindow

WIDTH, HEIGHT = 160.0, 40.0
STEP, TALL = 12, 60.0  # of the windows


def distributions(feature: dict) -> list[dict]:
    """Return the rectangles of the reference and of the window, both for each bar, in a picture of WIDTH and HEIGHT."""
    bars = feature.get("bars")
    if not bars or not bars[0]:
        return []
    most, width = max(map(max, bars)) or 1.0, WIDTH / len(bars[0])
    labels = feature.get("labels") or [""] * len(bars[0])
    return [
        _rectangle(at * width + width * (0.05 if kind == "before" else 0.3), width * (0.9 if kind == "before" else 0.4),
                   HEIGHT * share / most, HEIGHT) | {"kind": kind, "label": label, "percent": f"{100 * share:.1f}"}
        for at, (label, *shares) in enumerate(zip(labels, *bars, strict=True))
        for kind, share in zip(("before", "now"), shares, strict=True)
    ]  # fmt: skip


def over_time(windows: Sequence[DriftWindow]) -> list[dict]:
    """Return a rectangle for each window, the oldest first: as high as the share of the features that have drifted."""
    return [
        _rectangle(at * STEP + 1, STEP - 2, 2 + (TALL - 2) * window.share, TALL) | {"window": window, "x0": at * STEP}
        for at, window in enumerate(windows)
    ]


def _rectangle(x: float, width: float, height: float, below: float) -> dict:
    return {name: f"{value:.2f}" for name, value in (
        ("x", x), ("y", below - height), ("width", width), ("height", height))}  # fmt: skip
