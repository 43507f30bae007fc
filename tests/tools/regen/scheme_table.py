"""The table of measured schemes in docs/results/schemes.md, from the comparison in testdata; its prose stays."""

import json
from pathlib import Path
from typing import Any

from producer.quantize import present_name

ROOT = Path(__file__).resolve().parents[3]
_BEGIN = "<!-- Table of testdata/runs/smollm2-schemes.json, by `make regen`; do not edit. -->\n"
_END = "<!-- End of the table. -->\n"
_HEAD = (
    "| scheme | error | of `int2` | key part | value part | KL, attention | bits | perplexity | KL, model |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


def shown_name(scheme: dict[str, Any]) -> str:
    """The name of a scheme today: one whose dialects were given other names is told by their fingerprints."""
    names = [present_name(*each) for each in scheme["fingerprints"].items()]
    if scheme["name"] == "kivi" and set(names) == {"kivi-float32-key", "kivi-float32-value"}:
        return "`kivi-float32`"
    if scheme["name"] == "quarot-native" and names == ["quarot-head-wise"]:
        return "`quarot-native`, values head-wise"
    return f"`{scheme['name']}`"


def row(scheme: dict[str, Any], baseline: float) -> list[str]:
    """Cells of a scheme, of both formats: v1 kept the run of one text, v2 keeps those of all with their mean."""
    summary = scheme["summary"]
    model = summary["model"] if "model" in summary else scheme["perplexity"]
    return [
        shown_name(scheme),
        f"{summary['relative_error']:.4f}",
        f"{100 * summary['relative_error'] / baseline:.2f} %",
        f"{summary['key_part']:.4f}",
        f"{summary['value_part']:.4f}",
        f"{summary['divergence_nats']:.4f}",
        f"{summary['bits_per_element']:.3f}",
        f"{model['perplexity']:.3f}" if model else "",
        f"{model['divergence_nats']:.4f}" if model else "",
    ]


def page() -> bytes:
    """docs/results/schemes.md."""
    text = (ROOT / "docs/results/schemes.md").read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"docs/results/schemes.md: the marks {_BEGIN!r} and {_END!r} are missing")
    content = json.loads((ROOT / "testdata/runs/smollm2-schemes.json").read_text(encoding="utf-8"))
    # The quotient of the column beside it; `percent_of_int2` of the file is that of means over texts.
    (baseline,) = (one["summary"]["relative_error"] for one in content["schemes"] if one["name"] == "int2")
    rows = "".join(f"| {' | '.join(row(scheme, baseline))} |\n" for scheme in content["schemes"])
    exact = next(
        one["perplexity"]["reference_perplexity"] for one in content["schemes"] if one.get("perplexity")
    )
    line = f"\nThe perplexity with exact keys and values is {exact:.3f}.\n\n"
    return (before + begin + "\n" + _HEAD + rows + line + end + after).encode()
