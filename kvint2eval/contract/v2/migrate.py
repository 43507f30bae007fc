"""Migration of a v1 record to a v2 skeleton: unknown members are null, and no trial is invented.

The skeleton names what is to be run again; its outcome is `delegate`. Only what v1 states with the same meaning is
carried over: the recipe's names and sizes, the envelope of the workload, the environment and the digests.
"""

from __future__ import annotations

from typing import Any

from kvint2eval.contract import V2
from kvint2eval.contract.v2 import _decoder as layout
from kvint2eval.contract.v2.canonical import witness_v2

__all__ = ["migrate_v1"]

_UNBINDABLE = "carried over from a v1 record, which names no file"


def migrate_v1(record: dict[str, Any]) -> dict[str, Any]:
    """Skeleton of a v2 record, sealed.

    Parameters
    ----------
    record
        A v1 record as JSON values, one that `kvint2eval.adjudication` found supported or delegated.

    Returns
    -------
    dict
        The v2 record: measurements null, no claims, evidence as in v1.

    Raises
    ------
    CanonicalFormError
        A size of the record is beyond 2**53, which no v2 record can hold.
    """
    hardware, recipe = record["hardware"], record["recipe"]
    sizes = {"tokens": "context_tokens", "kv_heads": "kv_heads", "head_dimension": "head_dimension"}
    sizes["output_dimension"] = "output_dimension"
    skeleton: dict[str, Any] = {
        "contract_version": V2,
        "recipe": _unknown(layout.Recipe)
        | {name: recipe[name] for name in ("method", "bits", "group_size", "objective")}
        | {name: recipe[name] for name in ("key_granularity", "value_granularity")},
        "workload": _unknown(layout.Workload) | {name: hardware[old] for name, old in sizes.items()},
        "protocol": _unknown(layout.Protocol) | {"trials": record["metrics"].get("decode_trials")},
        "environment": _environment(record),
        "artifacts": _artifacts(record),
        "evidence": record["evidence"],
        "measurements": None,
        "claims": [],
        "witness_sha256": "",
    }
    return skeleton | {"witness_sha256": witness_v2(skeleton)}


def _unknown(kind: type[Any]) -> dict[str, Any]:
    """All members of an object, null."""
    return dict.fromkeys(layout.SHAPE[kind])


def _environment(record: dict[str, Any]) -> dict[str, Any]:
    runtime, hardware = record["runtime"], record["hardware"]
    known = {
        "runtime": runtime["name"],
        "os": hardware["os"],
        "cuda": runtime["version"] if runtime["name"] == "cuda" else None,
        "driver": runtime["driver"],
        "gpu": hardware["gpu"] or None,
        "gpu_memory_bytes": hardware["gpu_memory_bytes"] or None,
    }
    return _unknown(layout.Environment) | known


def _artifacts(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Producer, publication and compiled program. v1 does not say what the model's pin is a digest of."""
    runtime = record["runtime"]
    rows = [
        ("producer", record["artifact"]["id"], record["artifact"]),
        ("paper", record["recipe_artifact"]["id"], record["recipe_artifact"]),
        ("kernel", runtime["kernel"], runtime),
    ]
    return [
        {
            "role": role,
            "id": name,
            "version": pin["version"],
            "path": None,
            "text": False,
            "sha256": pin["sha256"],
            "unbindable": _UNBINDABLE,
        }
        for role, name, pin in rows
    ]
