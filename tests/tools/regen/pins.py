"""The pins files of testdata/pins."""

from kvint2eval.files.digest import sha256_hex
from tests.tools.regen import published

PINNED_TEXT = b"A stand-in for a pinned file: its text is hashed in LF form.\n"


def files() -> dict[str, bytes]:
    """Text of each file below testdata/pins."""
    return {
        "pinned.txt": PINNED_TEXT,
        "met.toml": _toml(
            ("artifact", "kvint2eval-l4-output-aware-slice", published.PRODUCER, None),
            ("model", "synthetic-attention-head", published.PRODUCER, None),
            ("runtime", "kvint2eval-output-aware-v2", published.BINARY, None),
        ),
        "edited.toml": _toml(
            ("artifact", "kvint2eval-l4-output-aware-slice", published.PRODUCER, "pinned.txt")
        ),
        "moved.toml": _toml(
            ("artifact", "kvint2eval-l4-output-aware-slice", published.PRODUCER, "moved.txt")
        ),
        "v2-met.toml": _toml(("producer", "stand-in", sha256_hex(PINNED_TEXT), "pinned.txt")),
        "v2-kernel.toml": _toml(("kernel", "stand-in kernels", published.BINARY, None)),
        "v2-edited.toml": _toml(("producer", "stand-in", sha256_hex(PINNED_TEXT), "met.toml")),
        "v2-moved.toml": _toml(("producer", "stand-in", sha256_hex(PINNED_TEXT), "moved.txt")),
        "bound.toml": _toml(("artifact", "stand-in", sha256_hex(PINNED_TEXT), "pinned.txt")),
    }


def _toml(*artifacts: tuple[str, str, str, str | None]) -> bytes:
    lines = ['format = "kvint2eval-pins/v1"']
    for role, identity, digest, path in artifacts:
        lines += ["", "[[artifact]]", f'role = "{role}"', f'id = "{identity}"', f'sha256 = "{digest}"']
        if path is None:
            lines.append('unbindable = "the publication holds no such file"')
        else:
            lines += [f'path = "{path}"', "text = true"]
    return ("\n".join(lines) + "\n").encode()
