"""The records of testdata/records/v2: for each finding some that give exactly it, and their accepted twin."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kvint2eval.codes import FINDINGS, REASONS
from tests.tools.regen import dialects_v2
from tests.tools.regen.edits_v2 import EDITS
from tests.tools.regen.vector_v2 import EVALUATION_SEQUENCES, claim, sealed, summarized, traced, vector

FOLDER = "testdata/records/v2"
TWIN = "supported/vector.json"


class Case(NamedTuple):
    """One record of the folder."""

    path: str
    """Below testdata/records/v2."""
    data: bytes
    finding: str | None
    """Finding that it gives; None for a supported record."""
    twin: str | None
    """The accepted record that it differs from in one place."""
    made: str
    """How it differs from its twin, in a few words."""
    is_sole: bool = True
    """Whether nothing but the rule of its finding refuses it: with that rule off it is supported or delegated."""
    pins: str | None = None
    """Pins file that it is judged with, below testdata/pins."""
    root: str | None = None
    """Root that it is judged with, below testdata."""


def text(record: Any) -> bytes:
    """A record as it is checked in: one member a line, a column of numbers on one line, LF."""
    return (_laid_out(record, "") + "\n").encode()


def _laid_out(value: Any, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        rows = [f"{deeper}{json.dumps(name)}: {_laid_out(one, deeper)}" for name, one in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        rows = [f"{deeper}{_laid_out(one, deeper)}" for one in value]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def at(record: Any, pointer: str) -> tuple[Any, Any]:
    """Holder and name of the value that a JSON pointer leads to."""
    *path, name = pointer.split("/")[1:]
    for step in path:
        record = record[int(step) if isinstance(record, list) else step]
    return record, int(name) if isinstance(record, list) else name


def edited(record: dict[str, Any], *changes: tuple[str, Any]) -> dict[str, Any]:
    """A copy of a record with some values changed, sealed again; a callable is given the old value."""
    changed = copy.deepcopy(record)
    for pointer, value in changes:
        holder, name = at(changed, pointer)
        if value is REMOVED:
            del holder[name]
        else:
            holder[name] = value(holder[name]) if callable(value) else value
    return sealed(changed)


REMOVED = object()


def _path(code: str, slug: str) -> str:
    return f"{REASONS[FINDINGS[code].reason].outcome}/{code}-{slug}.json"


def _supported() -> Iterator[tuple[str, dict[str, Any], str]]:
    base = vector()
    yield "vector", base, "a test vector, not a run: three arms, eight trials"
    yield "no-claims", sealed(base | {"claims": []}), "the same, claiming nothing"
    other = copy.deepcopy(base)
    other["claims"][1] = claim(other, "decode_us", level=0.99)
    yield "other-interval", sealed(other), "another level"
    refused = copy.deepcopy(base)
    baseline, selected = refused["measurements"]["arms"][:2]
    for index, value in enumerate((41.0, 42.0, 40.5, 43.0, 41.5, 42.5, 40.0, 44.0)):
        baseline["trials"]["decode_us"][index] = value
        selected["trials"]["decode_us"][index] = value + (-1) ** index
    summarized(baseline)
    summarized(selected)
    refused["claims"][1] = claim(refused, "decode_us")
    yield (
        "one-claim-refused",
        sealed(refused),
        "a claim of speed that its times do not show; the other one stands",
    )
    trace = sealed(traced(copy.deepcopy(base), EVALUATION_SEQUENCES))
    yield "trace", trace, "a trace instead of a synthetic slice"
    windows = [f"t@{1024 * index}+1024/last64" for index in range(8)]
    yield (
        "trace-windows",
        sealed(traced(copy.deepcopy(base), windows)),
        "windows of one text that share no token",
    )
    unknown = [(f"/environment/{name}", None) for name in ("driver", "cupy", "cuda", "gpu_memory_bytes")]
    yield "unknown-environment", edited(base, *unknown), "an environment that could not be read in part"
    escapes = edited(base, ("/workload/synthetic/generator", 'Übung <1> & "2"\\\t\u2028 \U0001d11e'))
    yield "escapes", escapes, "characters beyond ASCII, and some that JSON escapes"
    yield from dialects_v2.supported()


def _delegated() -> Iterator[tuple[str, str, dict[str, Any], str]]:
    base = vector()
    yield "modeled-evidence", "vector", edited(base, ("/evidence", "modeled")), "modeled figures"
    skeleton = edited(base, ("/measurements", None), ("/claims", []), ("/recipe/dialect", None))
    yield "modeled-evidence", "skeleton", sealed(skeleton | {"evidence": "modeled"}), "modeled, no figures"
    yield "trials-unknown", "skeleton", skeleton, "no trials, no dialect"
    yield (
        "trials-unknown",
        "recipe-known",
        edited(base, ("/measurements", None), ("/claims", [])),
        "no trials",
    )
    yield "environment-not-cuda", "numpy", edited(base, ("/environment/runtime", "numpy")), "another runtime"
    cpu = edited(base, ("/environment/runtime", "numpy"), ("/environment/gpu", None))
    yield "environment-not-cuda", "no-gpu", cpu, "another runtime and no GPU"
    yield "environment-gpu-unknown", "null", edited(base, ("/environment/gpu", None)), "no name of a GPU"
    bare = edited(base, ("/environment/gpu", None), ("/environment/driver", None))
    yield "environment-gpu-unknown", "driver-unknown", bare, "neither GPU nor driver could be read"


def _edits() -> Iterator[Case]:
    base = vector()
    for code, slug, changes, made, is_sole in EDITS:
        record = changes(copy.deepcopy(base)) if callable(changes) else edited(base, *changes)
        yield Case(_path(code, slug), text(sealed(record)), code, TWIN, made, is_sole)
    for code, slug, dialect, record, made in dialects_v2.refused():
        yield Case(_path(code, slug), text(record), code, f"supported/dialect-{dialect}.json", made)


def _spliced(old: str, new: str) -> bytes:
    before = text(vector()).decode()
    if before.count(old) != 1:
        raise ValueError(f"{old!r} stands {before.count(old)} times")
    return before.replace(old, new).encode()


def _bytes_cases() -> Iterator[tuple[str, str, bytes, str]]:
    yield "duplicate-member", "plain", _spliced('"trials": 8', '"trials": 9, "trials": 8'), "trials twice"
    yield (
        "duplicate-member",
        "escaped",
        _spliced('"trials": 8', '"trials": 8, "\\u0074rials": 9'),
        "trials twice",
    )
    yield "not-a-number", "nan", _spliced('"null_check_bound": 1e-09', '"null_check_bound": NaN'), "NaN"
    yield "negative-zero", "bound", _spliced('"null_check_bound": 1e-09', '"null_check_bound": -0.0'), "-0.0"
    yield "negative-zero", "underflow", _spliced("1e-09", "-1e-400"), "a number that rounds to -0"
    yield "number-overflow", "1e400", _spliced("1e-09", "1e400"), "1e400"
    yield "number-underflow", "1e-400", _spliced("1e-09", "1e-400"), "1e-400"
    yield (
        "integer-out-of-range",
        "seed",
        _spliced('"seed": 6260', '"seed": 9007199254740992'),
        "a seed of 2^53",
    )
    yield (
        "integer-out-of-range",
        "number",
        _spliced('"outlier_factor": 30.0', '"outlier_factor": 9007199254740993'),
        "2^53 + 1, which binary64 takes for 2^53",
    )
    yield "fraction-in-integer", "bits", _spliced('"bits": 2', '"bits": 2.0'), "2.0 bits"
    yield "fraction-in-integer", "exponent", _spliced('"seed": 6260', '"seed": 626e1'), "626e1"
    yield "trailing-content", "second-object", text(vector()) + b"{}\n", "an object after the record"
    yield "invalid-json", "comma", _spliced('"trials": 8,', '"trials": 8,,'), "two commas"
    yield "unknown-contract", "v9", _spliced("kvint2eval/v2", "kvint2eval/v9"), "version v9, layout of v2"
    yield "unknown-contract", "trailing-space", _spliced("kvint2eval/v2", "kvint2eval/v2 "), "a space behind"


def _witnesses() -> Iterator[tuple[str, str, bytes, str]]:
    base = vector()
    stated = base["witness_sha256"]
    for code, slug, witness, made in (
        ("witness-missing", "empty", "", "no witness"),
        ("witness-malformed", "upper-case", stated.upper(), "upper case"),
        ("witness-malformed", "newline", stated + "\n", "a newline at its end"),
        ("witness-mismatch", "other", "0" * 64, "another digest"),
    ):
        yield code, slug, text(base | {"witness_sha256": witness}), made
    changed = copy.deepcopy(base)
    changed["protocol"]["warmup"] = 2
    yield "witness-mismatch", "warmup", text(changed), "a figure changed after the record was sealed"


def _bound() -> Iterator[Case]:
    base = vector()
    twin = "supported/vector-bound.json"
    yield Case(twin, text(base), None, None, "judged with a root that holds its producer", root=".")
    for code, slug, changes, made in (
        (
            "artifact-file-differs",
            "producer",
            [("/artifacts/0/sha256", "3" * 64)],
            "another digest than the file's",
        ),
        ("artifact-file-differs", "raw-bytes", [("/artifacts/0/path", "pins/met.toml")], "another file"),
        ("artifact-file-missing", "moved", [("/artifacts/0/path", "pins/moved.txt")], "no such file"),
        ("artifact-file-missing", "folder", [("/artifacts/0/path", "pins")], "a folder"),
    ):
        record = edited(base, *changes)
        yield Case(_path(code, slug), text(record), code, twin, made, root=".")
    pinned = "supported/vector-pinned.json"
    yield Case(pinned, text(base), None, None, "judged with a pin that it meets", pins="v2-met.toml")
    drifted = text(edited(base, ("/artifacts/0/sha256", "3" * 64)))
    for code, slug, data, pins, made in (
        ("pin-mismatch", "producer", drifted, "v2-met.toml", "another producer digest than the pinned one"),
        ("pin-mismatch", "kernel", text(base), "v2-kernel.toml", "another kernel digest than the pinned one"),
        ("pinned-file-mismatch", "edited", text(base), "v2-edited.toml", "the pinned file was edited"),
        ("pinned-file-missing", "moved", text(base), "v2-moved.toml", "the pinned file is gone"),
    ):
        yield Case(_path(code, slug), data, code, pinned, made, pins=pins)


def cases() -> Iterator[Case]:
    """All records of the folder."""
    for slug, record, made in _supported():
        yield Case(f"supported/{slug}.json", text(record), None, None, made)
    for code, slug, record, made in _delegated():
        yield Case(_path(code, slug), text(record), code, TWIN, made)
    yield from _edits()
    for make in (_bytes_cases, _witnesses):
        yield from _from_bytes(make)
    yield from _bound()


def _from_bytes(make: Callable[[], Iterator[tuple[str, str, bytes, str]]]) -> Iterator[Case]:
    for code, slug, data, made in make():
        yield Case(_path(code, slug), data, code, TWIN, made)


def manifest() -> bytes:
    """List of the records with what each must give."""
    rows = [
        {
            "path": case.path,
            "outcome": case.path.partition("/")[0],
            "reason": FINDINGS[case.finding].reason if case.finding else "KVINT2_SUPPORTED",
            "finding": case.finding,
            "twin": case.twin,
            "is_sole": case.is_sole,
            "pins": case.pins,
            "root": case.root,
            "made": case.made,
        }
        for case in cases()
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
