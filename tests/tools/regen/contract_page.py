"""The generated parts of docs/contract-v2.md: the tables of members."""

import re
from collections.abc import Iterator
from pathlib import Path

from kvint2eval.contract.v2 import _decoder as layout
from kvint2eval.contract.v2 import model as v2

PAGE = Path(__file__).resolve().parents[3] / "docs/contract-v2.md"

_WORDS = {"string": "string", "uint": "integer", "number": "number", "boolean": "boolean"}
_WORDS |= {
    "strings": "strings",
    "numbers": "numbers",
    "table": "table",
    "object": "object",
    "rows": "objects",
}


def _fields() -> Iterator[str]:
    for kind, members in reversed(layout.SHAPE.items()):
        model = getattr(v2, kind.__name__)
        yield f"\n**`{kind.__name__}`.** {(model.__doc__ or '').strip()}\n"
        yield "| member | type | content |"
        yield "|---|---|---|"
        for name, (sort, inner, is_nullable) in members.items():
            word = _WORDS[sort] + (f" `{inner.__name__}`" if inner else "")
            text = (model.model_fields[name].description or "").replace("|", "\\|")
            yield f"| `{name}` | {word}{' or null' if is_nullable else ''} | {text} |"


def render() -> bytes:
    """Text of docs/contract-v2.md: what stands there, with its tables rebuilt."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("fields", _fields()),):
        block = "\n".join([f"<!-- begin {name} -->", *lines, f"<!-- end {name} -->"])
        pattern = rf"<!-- begin {name} -->.*?<!-- end {name} -->"
        text, count = re.subn(pattern, lambda _, block=block: block, text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"docs/contract-v2.md: found {count} blocks {name}, allowed: one")
    return text.encode()
