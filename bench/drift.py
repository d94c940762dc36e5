"""How often drift is seen where there is none, and where there is some: by apps/drift, and by Evidently if it is there.

`python bench/drift.py [WINDOWS [SHIFTED]]`, with scikit-learn, compares windows of 300 rows with a reference of 1000:
of a simulated table, and of the rows of scikit-learn's breast cancer data, drawn with replacement. Each scenario
changes the windows in another way, SHIFTED of them where it does. It prints the share of the windows in which a feature
is called drifted, the share of the features, and how many windows raise an alert where half of the features have to
drift.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from sklearn.datasets import load_breast_cancer

from apps.drift.columns import columns_of, profile_of
from apps.drift.comparing import Rule, compare

REFERENCE, WINDOW = 1000, 300
Table = Callable[[int, random.Random], list[dict]]


def simulated(count: int, draw: random.Random) -> list[dict]:
    """Return rows of ten normal, five skewed and five categorical features."""
    return [
        {f"normal{at}": draw.gauss(0, 1) for at in range(10)}
        | {f"skewed{at}": draw.expovariate(1) for at in range(5)}
        | {f"category{at}": draw.choices("abcde", (50, 25, 15, 8, 2))[0] for at in range(5)}
        for _ in range(count)
    ]


def cancer() -> Table:
    found = load_breast_cancer()
    rows = [dict(zip(map(str, found.feature_names), map(float, row), strict=True)) for row in found.data]
    return lambda count, draw: [dict(row) for row in draw.choices(rows, k=count)]


def moved(names: slice, by: float) -> Callable[[list[dict], dict], None]:
    """Return a change that moves numeric features by so many of their standard deviations."""

    def change(rows: list[dict], spreads: dict) -> None:
        for name in list(spreads)[names]:
            for row in rows:
                row[name] += by * spreads[name]

    return change


def untouched(rows: list[dict], spreads: dict) -> None:
    """Change nothing."""


def lacking(rows: list[dict], spreads: dict) -> None:
    name, draw = next(iter(spreads)), random.Random(5)
    for row in rows:
        if draw.random() < 0.2:
            row[name] = None


def other_categories(rows: list[dict], spreads: dict) -> None:
    draw = random.Random(5)
    for row in rows:
        if "category0" in row and draw.random() < 0.2:
            row["category0"] = "e"


SCENARIOS: dict[str, Callable[[list[dict], dict], None]] = {
    "no drift": untouched,
    "one feature moved by 0.3 sd": moved(slice(0, 1), 0.3),
    "one feature moved by 0.5 sd": moved(slice(0, 1), 0.5),
    "one feature missing in 20 %": lacking,
    "one category taken by 20 %": other_categories,
    "all numbers moved by 0.3 sd": moved(slice(None), 0.3),
}


def ours(reference: list[dict]) -> Callable[[list[dict]], set[str]]:
    profile = profile_of(reference, {}, "input")

    def judge(rows: list[dict]) -> set[str]:
        found = compare(profile, columns_of(rows, [each["name"] for each in profile]), Rule())
        return {each["name"] for each in found if each["drifted"]}

    return judge


def evidently(reference: list[dict]) -> Callable[[list[dict]], set[str]] | None:
    """Return the judgement of Evidently's preset; None where it is not installed."""
    try:
        import pandas
        from evidently import Report
        from evidently.presets import DataDriftPreset
    except ImportError as problem:
        print(f"without Evidently: {problem}")
        return None
    before = pandas.DataFrame(reference)

    def judge(rows: list[dict]) -> set[str]:
        found = Report([DataDriftPreset()]).run(pandas.DataFrame(rows), before).dict()
        drifted = set()
        for metric in found["metrics"]:
            settings = metric.get("config", {})
            if "ValueDrift" not in metric["metric_name"]:
                continue
            distance = "distance" in settings["method"] or "norm" in settings["method"]
            value, limit = float(metric["value"]), settings["threshold"]
            if value >= limit if distance else value < limit:
                drifted.add(settings["column"])
        return drifted

    return judge


def measured(judge: Callable[[list[dict]], set[str]], windows: Iterator[list[dict]], features: int) -> str:
    seen = alerts = count = drifted = 0
    begin = time.perf_counter()
    for rows in windows:
        names = judge(rows)
        count, drifted = count + 1, drifted + len(names)
        seen, alerts = seen + bool(names), alerts + (len(names) >= features / 2)
    took_ms = 1000 * (time.perf_counter() - begin) / count
    return (f"{100 * seen / count:6.1f} % of {count} windows, {100 * drifted / count / features:5.1f} % of features, "
            f"{100 * alerts / count:5.1f} % alerts, {took_ms:.0f} ms")  # fmt: skip


def windows_of(
    table: Table, change: Callable[[list[dict], dict], None], spreads: dict, count: int
) -> Iterator[list[dict]]:
    for seed in range(count):
        rows = table(WINDOW, random.Random(1000 + seed))
        change(rows, spreads)
        yield rows


def spread_of(rows: list[dict], name: str) -> float:
    return statistics.pstdev(row[name] for row in rows)


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    shifted = int(sys.argv[2]) if len(sys.argv) > 2 else most  # windows with drift
    for title, table in (("simulated", simulated), ("breast cancer", cancer())):
        reference = table(REFERENCE, random.Random(1))
        numbers = [name for name, value in reference[0].items() if isinstance(value, float)]
        spreads = {name: spread_of(reference, name) for name in numbers}
        judges = {"apps/drift": ours(reference), "Evidently": evidently(reference)}
        print(f"{title}: {len(reference[0])} features")
        for scenario, change in SCENARIOS.items():
            if change is other_categories and "category0" not in reference[0]:
                continue
            for name, judge in judges.items():
                if judge is not None:
                    count = shifted if change is not untouched else most
                    found = measured(judge, windows_of(table, change, spreads, count), len(reference[0]))
                    print(f"  {scenario:30} {name:10} {found}", flush=True)


if __name__ == "__main__":
    main()
