"""The sidecar of a v1 record: per-trial data that v1 has no fields for (layout: the producer's command page)."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producer.experiment.slice.protocol import Arm, RunResult

__all__ = ["LAYOUT", "build_trials", "trials_text"]

#: Version of the layout.
LAYOUT = "kvint2eval-producer/trials-1"


def build_trials(result: RunResult, environment: dict[str, object], record_sha256: str) -> dict[str, Any]:
    """Return the side file of a run as JSON values.

    Parameters
    ----------
    result : RunResult
    environment : dict
        See `producer.system.environment.collect_environment`.
    record_sha256 : str
        SHA-256 of the record's bytes, so that the two cannot be mixed up.
    """
    return {
        "layout": LAYOUT,
        "record_sha256": record_sha256,
        "slice": dataclasses.asdict(result.spec),
        "protocol": dataclasses.asdict(result.protocol),
        "environment": environment,
        "clip_grid": {"searched": result.grid, "extended_by": result.grid_extended_by},
        "selected_rotation": result.selected,
        "arms": [_arm(result, arm) for arm in result.arms],
    }


def _arm(result: RunResult, arm: Arm) -> dict[str, Any]:
    difference = result.differences[arm.index]
    return {
        "rotation": arm.index,
        "kind": arm.rotation.kind,
        "clip_ratio": arm.clip_ratio,
        "clip_curve": {"ratios": arm.curve.ratios, "calibration_nmse": arm.curve.objectives},
        "null_check_nmse": arm.null_nmse,
        "evaluation_queries_sha256": arm.queries_sha256,
        "nmse": arm.nmse,
        "decode_us": arm.decode_us,
        "host_decode_us": arm.host_decode_us,
        "code_bytes": arm.code_bytes,
        "scale_bytes": arm.scale_bytes,
        "baseline_minus_arm": None if difference is None else dataclasses.asdict(difference),
    }


def trials_text(trials: dict[str, Any]) -> str:
    """Return the side file as indented JSON with a line end."""
    return json.dumps(trials, indent=2, allow_nan=False) + "\n"
