"""A small site with a pins file, for the tests of the docs gate: figures and digests of the published run."""

import json
from pathlib import Path

from kvint2eval.files.digest import sha256_hex
from tests.helpers import published
from tests.tools.regen.published import PRODUCER

# The table and the sentences that the publication showed, figure for figure.
PAGE = f"""\
# The run

Its producer SHA-256 is
`{PRODUCER}`; the program was not kept.

## Results

| Observation | tuned no-rotation INT2 | selected rotation 7 |
|---|---|---|
| searched clip ratio | 0.80 | 1.00 |
| calibration + transform + quantize | 306.837196 ms | **319.267520** ms |
| packed K+V cache | 1,048,576 bytes | 1,048,576 bytes |
| post-`W_O` NMSE, mean ± sd (10 queries) | 52.353732 ± 51.571284 | 1.959262 ± 0.431511 |
| decode/query, mean ± sd | 19,907.198 ± 1,938.676 us | 19,187.186 ± 740.247 us |

Of nine candidates, rotation
7 was selected.

```text
driver: 580.159.03
KERNEL
```
"""

KERNEL = b"__global__ void quantize() {}\n"

FIGURES = [
    ("calibration + transform + quantize", 0, ["calibration_milliseconds"], "{:.6f} ms"),
    ("calibration + transform + quantize", 7, ["calibration_milliseconds"], "{:.6f} ms"),
    ("searched clip ratio", 0, ["clip_ratio"], "{:.2f}"),
    ("searched clip ratio", 7, ["clip_ratio"], "{:.2f}"),
    (
        "post-W_O NMSE, mean ± sd (10 queries)",
        0,
        ["output_nmse_mean", "output_nmse_stddev"],
        "{:.6f} ± {:.6f}",
    ),
    (
        "post-W_O NMSE, mean ± sd (10 queries)",
        7,
        ["output_nmse_mean", "output_nmse_stddev"],
        "{:.6f} ± {:.6f}",
    ),
    (
        "decode/query, mean ± sd",
        0,
        ["decode_microseconds_mean", "decode_microseconds_stddev"],
        "{:,.3f} ± {:,.3f} us",
    ),
    (
        "decode/query, mean ± sd",
        7,
        ["decode_microseconds_mean", "decode_microseconds_stddev"],
        "{:,.3f} ± {:,.3f} us",
    ),
]
COLUMNS = {0: "tuned no-rotation INT2", 7: "selected rotation 7"}


def table(name, **keys):
    """One TOML table."""
    return f"\n[[{name}]]\n" + "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in keys.items()
    )


def pins() -> str:
    """Text of the pins file."""
    parts = ['format = "kvint2eval-pins/v1"\npages = ["docs"]\n']
    parts.append("# What is bound.\n")
    parts.append(
        table(
            "artifact",
            role="record",
            id="l4",
            path="records/l4.json",
            text=True,
            sha256=sha256_hex(published()),
        )
    )
    parts.append(
        table(
            "artifact",
            role="kernel",
            id="quantize",
            path="kernels/q.cu",
            text=True,
            sha256=sha256_hex(KERNEL),
        )
    )
    parts.append(
        table(
            "artifact",
            role="artifact",
            id="kvint2eval-l4-output-aware-slice",
            sha256=PRODUCER,
            unbindable="the program was not kept",
        )
    )
    parts.append(
        table(
            "place",
            page="docs/run.md",
            artifact="kvint2eval-l4-output-aware-slice",
            before="producer SHA-256 is",
        )
    )
    parts.append(table("place", page="docs/run.md", artifact="quantize"))
    parts.append(table("place", page="README.md", artifact="l4"))
    for row, number, members, template in FIGURES:
        parts.append(
            table(
                "figure",
                page="docs/run.md",
                row=row,
                column=COLUMNS[number],
                record="records/l4.json",
                pointer=[f"/metrics/candidates/{number}/{member}" for member in members],
                format=template,
            )
        )
    parts += [
        table("figure", **{"page": "docs/run.md", "record": "records/l4.json"} | keys)
        for keys in (
            {
                "row": "packed K+V cache",
                "column": COLUMNS[0],
                "under": "Results",
                "pointer": "/metrics/cache_bytes",
                "format": "{:,d} bytes",
            },
            {"before": "rotation", "after": "was selected", "pointer": "/metrics/selected_rotation"},
            {"before": "driver:", "pointer": "/runtime/driver"},
        )
    ]
    return "".join(parts)


def make(folder: Path) -> Path:
    """Write the site and give the path of its pins file."""
    for name, data in {
        "docs/run.md": PAGE.replace("KERNEL", sha256_hex(KERNEL)).encode(),
        "README.md": f"Record `{sha256_hex(published())}`.\n".encode(),
        "records/l4.json": published(),
        "kernels/q.cu": KERNEL,
        "kvint2eval-pins.toml": pins().encode(),
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder / "kvint2eval-pins.toml"
