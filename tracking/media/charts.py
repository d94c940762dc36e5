"""The coordinates of the SVG drawings of a run's histograms; templates cannot compute them."""

from __future__ import annotations

WIDTH, HEIGHT = 600, 160
RIDGE_HEIGHT, RIDGE_STEP, LABEL = 60, 14, 60  # of an outline, between two of them, and of the steps' numbers


def steps_of_bars(counts: list[float], edges: list[float]) -> list[dict]:
    """Return the bars, as wide as their bins."""
    peak, span = max(counts) or 1, edges[-1] - edges[0]
    bars = []
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        x, width = WIDTH * (low - edges[0]) / span, WIDTH * (high - low) / span
        height = (HEIGHT - 10) * count / peak
        bars.append(
            {
                "x": f"{x:.2f}",
                "y": f"{HEIGHT - height:.2f}",
                "width": f"{max(0.5, width - 1):.2f}",
                "height": f"{height:.2f}",
                "title": f"{low:.4g} – {high:.4g}: {count:g}",
            }
        )
    return bars


def ridges(histograms: list[tuple[int, dict]], current: int) -> dict:
    """Return the outlines of the histograms of several steps, the latest in front, on one axis."""
    low = min(value["edges"][0] for _, value in histograms)
    high = max(value["edges"][-1] for _, value in histograms)
    densities = [(step, _density(value)) for step, value in histograms]
    peak = max(most for _, points in densities for _, most in points) or 1
    lines = []
    for row, (step, points) in enumerate(densities):
        base = RIDGE_HEIGHT + row * RIDGE_STEP
        path = [f"M{_x(points[0][0], low, high):.1f} {base}"]
        path += [f"L{_x(x, low, high):.1f} {base - RIDGE_HEIGHT * y / peak * 0.95:.1f}" for x, y in points]
        path.append(f"L{_x(points[-1][0], low, high):.1f} {base}")
        lines.append({"step": step, "d": "".join(path), "y": base, "current": step == current})
    height = RIDGE_HEIGHT + RIDGE_STEP * len(lines) + 10
    shown = {line["step"] for line in lines[:: max(1, len(lines) // 8)]} | {current}
    return {
        "lines": [{**line, "label": str(line["step"]) if line["step"] in shown else ""} for line in lines],
        "width": WIDTH + LABEL,
        "height": height,
        "label": WIDTH + 8,
        "low": f"{low:.4g}",
        "high": f"{high:.4g}",
    }


def _density(value: dict) -> list[tuple[float, float]]:
    """Return (middle of the bin, count for each unit of width)."""
    edges, points = value["edges"], []
    for count, low, high in zip(value["counts"], edges, edges[1:], strict=False):
        if high > low:
            points.append(((low + high) / 2, min(1e300, count / (high - low))))
    return points


def _x(value: float, low: float, high: float) -> float:
    return WIDTH * (value - low) / (high - low)
