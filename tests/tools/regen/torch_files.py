"""Small files of ``torch.save`` for the tests of the reader.

Run as `python -m tests.tools.regen.torch_files`, with torch.

They are not part of `make regen`, which needs no torch; a slow test compares them with what torch writes now.
"""

from pathlib import Path
from typing import Any

from tests.helpers import TESTDATA

FOLDER = TESTDATA / "vectors/torch"


def contents() -> dict[str, Any]:
    """File name → what is saved. The numbers are those that tests/producer/system/test_torch_file.py expects."""
    import torch  # noqa: PLC0415 - an extra

    def turn(angle: float) -> "torch.Tensor":
        c, s = torch.cos(torch.tensor(angle)), torch.sin(torch.tensor(angle))
        blocks = [torch.stack([torch.stack([c, -s]), torch.stack([s, c])])] * 4
        return torch.block_diag(*blocks)

    eigenvalues = torch.arange(1.0, 9.0)
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {
        "oscar-key-v1.pt": {
            "format_version": 1,
            "objective": "qqt_r_h_pbr",
            "source_grouping": "layer",
            "layers": {
                index: {"layer_id": index, "rotation": turn(index + 0.25), "eigenvalues": eigenvalues}
                for index in range(3)
            },
        },
        "oscar-value-v2.pt": {
            "format_version": 2,
            "objective": "cov_eig_hadamard_perhead",
            "source_grouping": "per_kv_head",
            "layers": {"0": {"layer_id": 0, "rotation": torch.stack([turn(0.25), turn(0.75)])}},
        },
        "tensors.pt": {
            "transposed": base.T,
            "slice": base[1:, ::2],
            "bfloat16": torch.tensor([1.0, -3.140625, 2.0**-133], dtype=torch.bfloat16),
            "half": torch.tensor([0.5, 65504.0], dtype=torch.float16),
            "double": torch.tensor([0.1], dtype=torch.float64),
            "seq_lens": torch.tensor([5, 7], dtype=torch.int32),
            "long": torch.tensor(2**40),
            "flags": torch.tensor([True, False]),
            "empty": torch.empty(0, 3),
            "nested": [torch.zeros(1), {"text": "x", "none": None}],
        },
        "module.pt": {"device": torch.device("cpu")},
    }


def write(folder: Path) -> None:
    """Write all files to a folder."""
    import torch  # noqa: PLC0415 - an extra

    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents().items():
        torch.save(content, folder / name)


if __name__ == "__main__":
    write(FOLDER)
