"""The record that the v2 test records are made from: a test vector, not a run.

Its figures come from a seeded generator and fit one another as the figures of a run would. Its environment says what
it is. The records that the producer made stand beside these, in testdata/runs.
"""

import json
import math
import random
from typing import Any

from kvint2eval.contract.v2.canonical import witness_v2
from kvint2eval.contract.v2.registry import DIALECTS
from kvint2eval.files.digest import sha256_hex
from tests.tools.regen import interval

NOBODY = "test vector, not a run"
GRID = [1.0, 0.9, 0.8, 0.7, 0.6]
# Error of an arm at the best clip, and how many times as large it is at each ratio of the grid.
LEVELS = {"r0": (0.75, [1.6, 1.3, 1.1, 1.0, 1.2]), "r1": (0.31, [1.4, 1.15, 1.0, 1.05, 1.3])}
LEVELS["r2"] = (0.36, [1.5, 1.2, 1.02, 1.0, 1.25])


def _digest(text: str) -> str:
    return sha256_hex(text.encode())


def _rotation(name: str, construction: str, seed: int | None) -> dict[str, Any]:
    digest = _digest(f"{NOBODY}: {name}")
    return {
        "id": name,
        "construction": construction,
        "seed": seed,
        "key_sha256": digest,
        "value_sha256": digest,
    }


def _artifact(role: str, name: str, **members: Any) -> dict[str, Any]:
    artifact = {"role": role, "id": name, "version": None, "path": None, "text": False}
    artifact |= {"sha256": _digest(name), "unbindable": None}
    return artifact | members


def _environment() -> dict[str, Any]:
    names = ("os", "python", "numpy", "cupy", "cuda", "driver", "gpu", "compute_capability")
    return {"runtime": "cuda"} | dict.fromkeys(names, NOBODY) | {"gpu_memory_bytes": 0}


def nmse(numerator: float, denominator: float) -> float:
    """NMSE as the contract defines it."""
    return numerator / (denominator + 1e-30)


def population(values: list[float]) -> tuple[float, float]:
    """Mean and population deviation."""
    center = math.fsum(values) / len(values)
    return center, math.sqrt(math.fsum((value - center) ** 2 for value in values) / len(values))


def middle(values: list[float]) -> float:
    """Median."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _trials(generator: random.Random, level: float, denominators: list[float]) -> dict[str, Any]:
    columns: dict[str, list[Any]] = {name: [] for name in ("key_part", "value_part", "cross_part")}
    for denominator in denominators:
        whole = level * denominator * generator.uniform(0.8, 1.2)
        key = whole * generator.uniform(0.3, 0.6)
        cross = math.sqrt(key * whole) * generator.uniform(-0.2, 0.2)
        columns["key_part"].append(key)
        columns["cross_part"].append(cross)
        columns["value_part"].append(whole - key - cross)
    numerators = [math.fsum(parts) for parts in zip(*columns.values(), strict=True)]
    head = {"query": [f"e{index}" for index in range(len(denominators))]}
    head["nmse"] = [nmse(*pair) for pair in zip(numerators, denominators, strict=True)]
    head |= {"numerator": numerators, "denominator": denominators}
    times = [round(generator.uniform(40, 44) + 10 * level, 3) for _ in denominators]
    return head | columns | {"decode_us": times}


def _arm(generator: random.Random, name: str, denominators: list[float], queries: int) -> dict[str, Any]:
    level, factors = LEVELS[name]
    table = [[level * factor * generator.uniform(0.99, 1.01) for _ in range(queries)] for factor in factors]
    trials = _trials(generator, level, denominators)
    arm = {"rotation": name, "clip_ratio": GRID[factors.index(1.0)]}
    objectives = [population(row)[0] for row in table]
    arm["calibration"] = {"clip_ratio": GRID, "objective": objectives, "query_nmse": table}
    arm["summary"] = {}
    return summarized(arm | {"trials": trials})


def summarized(arm: dict[str, Any]) -> dict[str, Any]:
    """An arm with the summary that its trials give."""
    center, deviation = population(arm["trials"]["nmse"])
    median = middle(arm["trials"]["decode_us"])
    arm["summary"] = {"nmse_mean": center, "nmse_stddev": deviation, "decode_us_median": median}
    return arm


def claim(record: dict[str, Any], metric: str = "output_nmse", **members: Any) -> dict[str, Any]:
    """A claim of a record with the figures that its trials give, by a second implementation of the interval."""
    made = {
        "metric": metric,
        "candidate": record["measurements"]["selected"],
        "baseline": record["recipe"]["baseline"],
        "statistic": "mean-difference",
        "value": 0.0,
        "low": 0.0,
        "high": 0.0,
        "method": "paired-percentile-bootstrap",
        "level": 0.95,
        "resamples": 2000,
        "seed": None,
    } | members
    arms = {arm["rotation"]: arm["trials"] for arm in record["measurements"]["arms"]}
    column = {"output_nmse": "nmse", "decode_us": "decode_us"}[metric]
    columns = arms[made["baseline"]][column], arms[made["candidate"]][column]
    differences = [one - other for one, other in zip(*columns, strict=True)]
    if made["seed"] is None:
        made["seed"] = interval.seed_of(*columns)
    low, high = interval.percentile(differences, made["level"], made["resamples"], made["seed"])
    return made | {"value": math.fsum(differences) / len(differences), "low": low, "high": high}


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """A record with the witness that it must have."""
    return {**record, "witness_sha256": witness_v2(record)}


def vector(trials: int = 8, queries: int = 3, *, claims: bool = True, seed: int = 20260101) -> dict[str, Any]:
    """The record, sealed.

    Parameters
    ----------
    trials, queries
        Numbers of evaluation and calibration queries.
    claims
        Whether it claims what its trials show.
    seed
        Of the figures.
    """
    generator = random.Random(seed)
    denominators = [generator.uniform(50, 150) for _ in range(trials)]
    names = ("r0", "r1", "r2")
    dialect = {"id": "symmetric-absmax-clip"} | DIALECTS["symmetric-absmax-clip"]
    recipe = {
        "method": "hadamard",
        "bits": 2,
        "group_size": 128,
        "key_granularity": "per-token-group",
        "value_granularity": "per-token-group",
        "dialect": dialect,
        "key_centring": "none",
        "sink_tokens": 64,
        "recent_tokens": 256,
        "window_dtype": "bfloat16",
        "clip_grid": GRID,
        "clip_grid_size": len(GRID),
        "objective": "post-wo-attention-output-nmse",
        "baseline": "r0",
        "rotations": [
            _rotation("r0", "identity", None),
            _rotation("r1", "signed-hadamard", 11),
            _rotation("r2", "signed-hadamard", 12),
        ],
        "rotation_count": 3,
    }
    sizes = {"tokens": 1024, "kv_heads": 4, "query_heads": 8, "head_dimension": 128, "output_dimension": 256}
    synthetic = {"generator": NOBODY, "seed": 6260, "outlier_stride": 9973, "outlier_factor": 30.0}
    protocol = {
        "name": "paired",
        "calibration_queries": [f"c{index}" for index in range(queries)],
        "evaluation_queries": [f"e{index}" for index in range(trials)],
        "arms_share_queries": True,
        "selection_reads": "calibration",
        "trials": trials,
        "clock": "cuda-event",
        "warmup": 1,
        "repeats": 3,
        "synchronised": True,
    }
    checks = [{"rotation": name, "nmse": 0.0 if name == "r0" else 3e-13} for name in names]
    measurements = {
        "selected": "r1",
        "null_check_bound": 1e-9,
        "null_checks": checks,
        "arms": [_arm(generator, name, denominators, queries) for name in names],
        "storage": storage(1024, 4, 128, sinks=320),
    }
    record = {
        "contract_version": "kvint2eval/v2",
        "recipe": recipe,
        "workload": {"synthetic": synthetic, "trace": None} | sizes,
        "protocol": protocol,
        "environment": _environment(),
        "artifacts": [
            _artifact("producer", "stand-in", path="pins/pinned.txt", text=True, sha256=PINNED_DIGEST),
            _artifact("paper", "arxiv:2608.02691", version="v2", unbindable="published elsewhere"),
            _artifact("kernel", "stand-in kernels", unbindable=NOBODY),
        ],
        "evidence": "observed",
        "measurements": measurements,
        "claims": [],
        "witness_sha256": "",
    }
    if claims:
        record["claims"] = [claim(record), claim(record, "decode_us")]
        # Read again, so that no two members are one list.
    return sealed(json.loads(json.dumps(record)))


TRACE = {
    "manifest_sha256": "1" * 64,
    "model_id": "test vector, not a model",
    "revision": "none",
    "weights_sha256": "2" * 64,
    "layer": 3,
    "head": 0,
    "captured_by": "nobody: a test vector",
}
EVALUATION_SEQUENCES = [f"t{index}@0+1024/last64" for index in range(8)]
CALIBRATION_SEQUENCES = [f"c{index}@0+1024/last64" for index in range(3)]


def traced(
    record: dict[str, Any], evaluation: list[str], calibration: list[str] = CALIBRATION_SEQUENCES
) -> dict[str, Any]:
    """A record as one of a trace, with other ids of its sequences."""
    record["workload"] |= {"synthetic": None, "trace": dict(TRACE)}
    record["protocol"] |= {"evaluation_queries": evaluation, "calibration_queries": calibration}
    for arm in record["measurements"]["arms"]:
        arm["trials"]["query"] = evaluation
    return record


PINNED_DIGEST = _digest("A stand-in for a pinned file: its text is hashed in LF form.\n")


def storage(
    tokens: int, heads: int, dimension: int, *, sinks: int, metadata_bits: int = 32
) -> dict[str, Any]:
    """Bytes of a cache: two bits a value and one scalar a group of 128, and 16 bits a value in the windows."""
    quantized = tokens - sinks
    elements = 2 * heads * dimension
    stored = {
        "codes_bytes": quantized * elements // 4,
        "metadata_bytes": quantized * elements // 128 * metadata_bits // 8,
        "window_bytes": sinks * elements * 2,
    }
    return stored | {"bits_per_element": 8 * sum(stored.values()) / (tokens * elements)}
