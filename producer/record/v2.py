"""Common parts of v2 records of synthetic slices and of traces, as JSON values."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kvint2eval import __version__
from kvint2eval.contract.v2.canonical import witness_v2
from kvint2eval.contract.v2.model import (
    CONTRACT_VERSION,
    Claim,
    Measurements,
    Protocol,
    Recipe,
    Record,
    Workload,
)
from producer.numerics.bootstrap import summarize
from producer.numerics.contract_bootstrap import claim_seed, paired_interval
from producer.quantize import get_pair
from producer.quantize.fingerprint import fingerprint
from producer.record.provenance import PRODUCER_ID, RECIPE_ARTIFACT, source_digest
from producer.system.environment import os_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from producer.backend.base import Backend
    from producer.numerics.nmse import TrialErrors

__all__ = [
    "CLAIM_LEVEL",
    "CLAIM_RESAMPLES",
    "GRANULARITIES",
    "OBJECTIVE",
    "ComputedV2",
    "RecordV2",
    "artifacts_json",
    "claim_json",
    "dialect_json",
    "environment_json",
    "is_fair_baseline",
    "record_v2_text",
    "sealed_v2",
    "summary_json",
]

RecordV2 = Record
"""The model of a v2 record."""

CLAIM_LEVEL = 0.95
CLAIM_RESAMPLES = 2000

#: What clip ratios and rotations are chosen by.
OBJECTIVE = "post-wo-attention-output-nmse"

#: How a record says along which axis groups run.
GRANULARITIES = {"channels": "per-token-group", "tokens": "per-channel-group"}

# What a dialect's members are in a record, as far as they are those of its numerics.
_DIALECT_MEMBERS = (
    "clip_kind",
    "clip_scope",
    "zero_point",
    "rounding",
    "range_floor",
    "metadata_dtype",
    "metadata_scalars",
    "dequantization_dtype",
    "packing",
)


@dataclass(frozen=True, slots=True)
class ComputedV2:
    """The members of a v2 record that a run computes: no environment, no artifacts and no witness.

    Attributes
    ----------
    recipe, workload, protocol, measurements, claims
        As of `Record`.
    """

    recipe: Recipe
    workload: Workload
    protocol: Protocol
    measurements: Measurements
    claims: tuple[Claim, ...]

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> ComputedV2:
        """Return the members of a record that are computed, from their JSON values."""
        return cls(
            # A list of JSON is a tuple of the contract.
            recipe=Recipe.model_validate(members["recipe"], strict=False),
            workload=Workload.model_validate(members["workload"], strict=False),
            protocol=Protocol.model_validate(members["protocol"], strict=False),
            measurements=Measurements.model_validate(members["measurements"], strict=False),
            claims=tuple(Claim.model_validate(claim, strict=False) for claim in members["claims"]),
        )


def sealed_v2(**members: Any) -> dict[str, Any]:
    """Return an observed record of its members, which are JSON values, with its witness.

    Parameters
    ----------
    **members
        recipe, workload, protocol, environment, artifacts, measurements and claims. Whole numbers of the contract are
        ints, all others floats: what a reader sees is what is sealed.
    """
    names = (
        "recipe",
        "workload",
        "protocol",
        "environment",
        "artifacts",
        "evidence",
        "measurements",
        "claims",
    )
    content = members | {"evidence": "observed"}
    record = {"contract_version": CONTRACT_VERSION} | {name: content[name] for name in names}
    record["witness_sha256"] = ""
    return record | {"witness_sha256": witness_v2(record)}


def dialect_json(name: str) -> dict[str, Any]:
    """Return a dialect, or a pair of keys' and values', as a record names it, with the fingerprint of what is run."""
    key, value = get_pair(name)
    members = {member: getattr(key.numerics, member) for member in _DIALECT_MEMBERS}
    dialects = (key,) if key is value else (key, value)
    return {"id": name} | members | {"fingerprint_sha256": fingerprint(*dialects)}


def environment_json(backend: Backend) -> dict[str, Any]:
    """Return where a backend runs, as a record says it."""
    runtime, described = backend.runtime, backend.describe()
    is_cuda = runtime.name == "cuda"
    return {
        "runtime": runtime.name,
        "os": os_name(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cupy": described.get("cupy") if is_cuda else None,
        "cuda": runtime.version if is_cuda else None,
        "driver": described.get("driver") if is_cuda else None,
        "gpu": runtime.gpu or None,
        "gpu_memory_bytes": runtime.gpu_memory_bytes or None,
        "compute_capability": described.get("compute_capability") if is_cuda else None,
    }


def artifacts_json(backend: Backend, *others: tuple[str, str, str | None, str, str]) -> list[dict[str, Any]]:
    """Return what a record rests on: producer, paper, on a GPU the kernels, and others.

    Parameters
    ----------
    backend : Backend
    *others : tuple of str
        Role, id, version or None, SHA-256, and why the digest cannot be bound.
    """
    runtime = backend.runtime
    listing = (
        "a digest over the listing of all sources, which docs/reference/producer-cli.md defines; "
        "rederive recomputes it"
    )
    rows: list[tuple[str, str, str | None, str, str]] = [
        ("producer", PRODUCER_ID, __version__, source_digest(), listing),
        (
            "paper",
            RECIPE_ARTIFACT.id,
            RECIPE_ARTIFACT.version,
            RECIPE_ARTIFACT.sha256,
            "published elsewhere",
        ),
    ]
    if runtime.name == "cuda":
        why = "compiled when it ran; the kernel pins say what the compiler makes of the sources"
        rows.append(("kernel", runtime.kernel, runtime.version, runtime.sha256, why))
    return [
        {
            "role": role,
            "id": name,
            "version": version,
            "path": None,
            "text": False,
            "sha256": digest,
            "unbindable": why,
        }
        for role, name, version, digest, why in (*rows, *others)
    ]


def claim_json(arms: tuple[str, str], nmse: tuple[Sequence[float], Sequence[float]]) -> dict[str, Any]:
    """Return the claim that an arm has less output error than the baseline, as a record makes it.

    Parameters
    ----------
    arms : tuple of str
        Ids of baseline and candidate.
    nmse : tuple of sequence of float
        Of baseline and candidate, trial by trial.

    Notes
    -----
    The seed of the interval's index stream follows from the figures (contract v2, "Interval of a claim").
    """
    seed = claim_seed(*nmse)
    differences = [one - other for one, other in zip(*nmse, strict=True)]
    low, high = paired_interval(*nmse, level=CLAIM_LEVEL, resamples=CLAIM_RESAMPLES, seed=seed)
    return {
        "metric": "output_nmse",
        "candidate": arms[1],
        "baseline": arms[0],
        "statistic": "mean-difference",
        "value": summarize(differences).mean,
        "low": low,
        "high": high,
        "method": "paired-percentile-bootstrap",
        "level": CLAIM_LEVEL,
        "resamples": CLAIM_RESAMPLES,
        "seed": seed,
    }


def is_fair_baseline(errors: TrialErrors, objective: float, selected_objective: float) -> bool:
    """Return whether a baseline may be claimed to be worse: it beats zeros, and calibration does not prefer it.

    Parameters
    ----------
    errors : TrialErrors
        Of the baseline, with a numerator and a denominator a trial.
    objective, selected_objective : float
        Least calibration objectives of the baseline and of the selected arm.
    """
    return math.fsum(errors.numerator) < math.fsum(errors.denominator) and objective >= selected_objective


def summary_json(nmse: Sequence[float], decode_us: Sequence[float]) -> dict[str, float]:
    """Return what an arm's trials give, as a record says it."""
    summary = summarize(nmse)
    return {
        "nmse_mean": summary.mean,
        "nmse_stddev": summary.stddev,
        "decode_us_median": float(np.median(decode_us)),
    }


def record_v2_text(record: dict[str, Any]) -> str:
    """Return a record as JSON with a line end, a column of numbers on one line: the bytes that `run` writes."""
    return _laid_out(record, "") + "\n"


def _laid_out(value: Any, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        rows = [f"{deeper}{json.dumps(name)}: {_laid_out(one, deeper)}" for name, one in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return "[\n" + ",\n".join(f"{deeper}{_laid_out(one, deeper)}" for one in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
