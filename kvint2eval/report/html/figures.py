"""Figures of a record for the page, for every contract: rows, trials, clip curves, pins.

All of it is read from the canonical bytes of a verdict, so it is what was judged. Nothing here judges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kvint2eval.strict_json.rfc8785 import es_number

if TYPE_CHECKING:
    from kvint2eval.verdict import Verdict

__all__ = ["Arm", "Curve", "Figures", "Spread", "Trials", "errors_of", "figures_of", "number"]


class Arm(NamedTuple):
    """One row of the candidate table."""

    name: str
    cells: tuple[str, ...]
    is_baseline: bool
    is_selected: bool


class Spread(NamedTuple):
    """Means with deviations, one an arm."""

    title: str
    unit: str
    points: tuple[tuple[str, float, float], ...]
    """Name, mean, deviation."""


class Trials(NamedTuple):
    """Values of the trials, one list an arm."""

    title: str
    unit: str
    arms: tuple[tuple[str, tuple[float, ...]], ...]


class Curve(NamedTuple):
    """Objective over the clip ratio, one curve an arm."""

    title: str
    curves: tuple[tuple[str, tuple[tuple[float, float], ...], float], ...]
    """Name, points, chosen ratio."""


class Figures(NamedTuple):
    """What one record shows."""

    columns: tuple[str, ...]
    """Heads of the candidate table; the first is the arm's."""
    arms: tuple[Arm, ...]
    plots: tuple[Spread | Trials | Curve, ...]
    stated: tuple[tuple[str, str], ...]
    """Members beside the measurements, by path."""


def number(value: float) -> str:
    """A number with the digits that the record has, which are the shortest that read back as it."""
    return es_number(value)


def figures_of(verdict: Verdict) -> Figures | None:
    """What the record of a verdict shows; None for bytes without a known layout."""
    if not verdict.canonical:
        return None
    record: dict[str, Any] = msgspec.json.decode(verdict.canonical)
    stated = tuple(_leaves({name: record[name] for name in record if name not in _MEASURED}, ""))
    if "metrics" in record:
        return _v1(record, stated)
    return _v2(record, stated)


def errors_of(verdict: Verdict) -> tuple[float | None, float | None]:
    """Output NMSE of the baseline and of the selected candidate; None where the record holds none."""
    record: dict[str, Any] = msgspec.json.decode(verdict.canonical)
    if "metrics" in record:
        metrics = record["metrics"]
        return metrics["baseline_output_nmse"], metrics["candidate_output_nmse"]
    measurements = record.get("measurements") or {}
    nmse = {row["rotation"]: row["summary"]["nmse_mean"] for row in measurements.get("arms") or ()}
    return nmse.get(record["recipe"]["baseline"]), nmse.get(measurements.get("selected"))


_MEASURED = ("metrics", "measurements", "claims", "witness_sha256")


def _leaves(value: Any, path: str) -> list[tuple[str, str]]:
    """Members of an object by dotted path; a list of values stands as one, its items by number otherwise."""
    if isinstance(value, dict):
        return [
            one for name, inner in value.items() for one in _leaves(inner, f"{path}.{name}" if path else name)
        ]
    if isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        return [one for at, inner in enumerate(value) for one in _leaves(inner, f"{path}.{at}")]
    return [(path, _scalar(value))]


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_scalar, value))
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "not stated"}[value]
    return number(value) if isinstance(value, int | float) else str(value)


_V1_COLUMNS = (
    "rotation",
    "clip ratio",
    "calibration, ms",
    "output NMSE, mean",
    "deviation",
    "task accuracy, mean",
    "deviation",
    "decode, µs, mean",
    "deviation",
)


def _v1(record: dict[str, Any], stated: tuple[tuple[str, str], ...]) -> Figures:
    metrics = record["metrics"]
    rows = metrics["candidates"] or []
    selected = metrics["selected_rotation"]
    arms = tuple(
        Arm(
            str(row["rotation"]),
            tuple(map(number, list(row.values())[1:])),
            not row["rotation"],
            row["rotation"] == selected,
        )
        for row in rows
    )
    plots = (
        _spread(rows, "output_nmse", "Output NMSE of each rotation, mean ± deviation", ""),
        _spread(rows, "decode_microseconds", "Decode time of each rotation, mean ± deviation", "µs"),
    )
    return Figures(_V1_COLUMNS, arms, plots if rows else (), stated)


def _spread(rows: list[dict[str, Any]], name: str, title: str, unit: str) -> Spread:
    return Spread(
        title, unit, tuple((str(row["rotation"]), row[f"{name}_mean"], row[f"{name}_stddev"]) for row in rows)
    )


_V2_COLUMNS = ("rotation", "clip ratio", "output NMSE, mean", "deviation", "decode, µs, median")


def _v2(record: dict[str, Any], stated: tuple[tuple[str, str], ...]) -> Figures:
    # A modeled record may hold no measurements.
    measurements = record.get("measurements") or {}
    rows = measurements.get("arms") or []
    selected, baseline = measurements.get("selected"), record["recipe"]["baseline"]
    names = ("nmse_mean", "nmse_stddev", "decode_us_median")
    arms = tuple(
        Arm(
            row["rotation"],
            (number(row["clip_ratio"]), *(number(row["summary"][name]) for name in names)),
            row["rotation"] == baseline,
            row["rotation"] == selected,
        )
        for row in rows
    )
    plots = (
        Trials("Output NMSE of each trial", "", _trials(rows, "nmse")),
        Trials("Decode time of each trial", "µs", _trials(rows, "decode_us")),
        Curve(
            "Calibration objective over the clip ratio",
            tuple(
                (
                    row["rotation"],
                    tuple(
                        zip(row["calibration"]["clip_ratio"], row["calibration"]["objective"], strict=False)
                    ),
                    row["clip_ratio"],
                )
                for row in rows
            ),
        ),
    )
    return Figures(_V2_COLUMNS, arms, plots if rows else (), stated)


def _trials(rows: list[dict[str, Any]], name: str) -> tuple[tuple[str, tuple[float, ...]], ...]:
    return tuple((row["rotation"], tuple(row["trials"][name])) for row in rows)
