"""The claims of the checked-in v2 records, recomputed from their trials: `python -m tests.tools.regen.claims_of_runs`.

A claim that the trials do not show goes. Everything else of a record stays as it was run; the record is sealed again.
"""

import json
from pathlib import Path
from typing import Any

from kvint2eval import adjudicate
from producer.record.v2 import claim_json, record_v2_text
from tests.tools.regen.vector_v2 import sealed

RUNS = Path(__file__).resolve().parents[3] / "testdata/runs"


def reclaimed(record: dict[str, Any]) -> dict[str, Any]:
    """A record with the claims that its trials show, of those that it makes."""
    nmse = {arm["rotation"]: arm["trials"]["nmse"] for arm in record["measurements"]["arms"]}
    pairs = [
        (one["baseline"], one["candidate"]) for one in record["claims"] if one["metric"] == "output_nmse"
    ]
    if len(pairs) != len(record["claims"]):
        raise ValueError("a claim of another metric than output_nmse cannot be recomputed here")
    record["claims"] = [claim_json(pair, (nmse[pair[0]], nmse[pair[1]])) for pair in pairs]
    again = sealed(record)
    verdict = adjudicate(json.dumps(again).encode())
    if verdict.outcome == "unsupported" or any(one.finding for one in verdict.claims or ()):
        again = sealed(record | {"claims": []})
    return again


def main() -> None:
    """Write the records with their claims."""
    path = RUNS / "paired.json"
    path.write_text(record_v2_text(reclaimed(json.loads(path.read_text()))))
    path = RUNS / "smollm2-layers.jsonl"
    lines = [json.dumps(reclaimed(json.loads(line)), separators=(",", ":")) for line in path.open()]
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
