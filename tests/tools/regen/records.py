"""The records of testdata/records/v1: for each finding one that gives exactly it, and its accepted twin."""

import copy
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from kvint2eval.codes import FINDINGS, REASONS
from tests.tools.regen import published

FOLDER = "testdata/records/v1"
TWIN = "supported/l4-published.json"


class Case(NamedTuple):
    """One record of the folder."""

    path: str
    """Below testdata/records/v1."""
    data: bytes
    finding: str | None
    """Finding that it gives; None for a supported record."""
    twin: str | None
    """The accepted record that it differs from in one place."""
    made: str
    """How it differs from its twin, in a few words."""
    pins: str | None = None
    """Pins file that it is judged with, below testdata/pins."""


def text(record: Any) -> bytes:
    """A record as it is checked in: two spaces, declared order, LF."""
    return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()


def _edited(pointer: str, value: Any) -> bytes:
    """The published record with one value changed, and nothing else."""
    record = published.observed()
    *path, name = pointer.split("/")[1:]
    holder: Any = record
    for step in path:
        holder = holder[int(step) if isinstance(holder, list) else step]
    if value is _REMOVED:
        del holder[name]
    else:
        holder[int(name) if isinstance(holder, list) else name] = value
    return text(record)


_REMOVED = object()


def _spliced(old: str, new: str) -> bytes:
    """The published record with one piece of its text changed."""
    before = text(published.observed()).decode()
    if before.count(old) != 1:
        msg = f"{old!r} stands {before.count(old)} times"
        raise ValueError(msg)
    return before.replace(old, new).encode("utf-8", "surrogateescape")


# finding, slug, pointer, value, how
_EDITS: tuple[tuple[str, str, str, Any, str], ...] = (
    ("unknown-member", "capital", "/hardware/Seed", 6260, "a member Seed beside seed"),
    ("wrong-type", "bits-string", "/recipe/bits", "2", "bits as a string"),
    ("wrong-type", "version-number", "/contract_version", 1, "the version as a number"),
    ("wrong-type", "null", "/hardware/gpu", None, "gpu null"),
    ("wrong-type", "boolean", "/metrics/decode_trials", True, "decode_trials true"),
    ("integer-out-of-range", "seed-negative", "/hardware/seed", -1, "seed -1"),
    ("integer-out-of-range", "seed-2-64", "/hardware/seed", 2**64, "seed 2^64"),
    ("integer-out-of-range", "trials-2-63", "/metrics/decode_trials", 2**63, "decode_trials 2^63"),
    ("unknown-contract", "v9", "/contract_version", "kvint2eval/v9", "version v9"),
    ("unknown-contract", "missing", "/contract_version", _REMOVED, "no version"),
    ("unsupported-method", "unknown-rotation", "/recipe/method", "unknown-rotation", "another method"),
    ("unsupported-method", "missing", "/recipe", _REMOVED, "no recipe"),
    ("recipe-bits", "4", "/recipe/bits", 4, "4 bits"),
    ("recipe-group-size", "64", "/recipe/group_size", 64, "groups of 64"),
    ("recipe-key-granularity", "per-channel", "/recipe/key_granularity", "per-channel", "keys per channel"),
    (
        "recipe-value-granularity",
        "per-channel",
        "/recipe/value_granularity",
        "per-channel",
        "values per channel",
    ),
    ("recipe-objective", "cache-mse", "/recipe/objective", "cache-reconstruction-mse", "another objective"),
    ("recipe-baseline", "fp16", "/recipe/baseline", "fp16", "an unquantized baseline"),
    ("pin-id-empty", "artifact", "/artifact/id", "", "no id"),
    ("pin-id-empty", "missing", "/artifact", _REMOVED, "no artifact"),
    ("pin-version-empty", "model", "/model/version", "", "no version"),
    ("pin-digest-malformed", "upper-case", "/artifact/sha256", published.PRODUCER.upper(), "upper case"),
    (
        "pin-digest-malformed",
        "newline",
        "/recipe_artifact/sha256",
        published.PAPER + "\n",
        "a newline at the end",
    ),
    ("pin-digest-malformed", "full-width", "/model/sha256", "\uff11" * 64, "full-width digits"),
    ("runtime-member-empty", "driver", "/runtime/driver", "", "no driver"),
    ("runtime-digest-malformed", "short", "/runtime/sha256", published.BINARY[:-1], "63 characters"),
    ("envelope-member-missing", "memory", "/hardware/gpu_memory_bytes", _REMOVED, "no memory size"),
    ("envelope-os-empty", "empty", "/hardware/os", "", "no operating system"),
    ("envelope-dimension", "heads", "/hardware/kv_heads", 0, "no heads"),
    ("envelope-seed-zero", "zero", "/hardware/seed", 0, "seed 0"),
    ("modeled-evidence", "observed-figures", "/evidence", "modeled", "evidence modeled"),
    ("unknown-evidence", "estimated", "/evidence", "estimated", "evidence estimated"),
    ("unknown-evidence", "missing", "/evidence", _REMOVED, "no evidence"),
    ("runtime-not-cuda", "numpy", "/runtime/name", "numpy", "another runtime"),
    ("gpu-unnamed", "empty", "/hardware/gpu", "", "no GPU"),
    ("measurement-missing", "trials", "/metrics/decode_trials", _REMOVED, "no decode_trials"),
    ("measurement-missing", "candidates-null", "/metrics/candidates", None, "candidates null"),
    (
        "measurement-missing",
        "row-member",
        "/metrics/candidates/3/clip_ratio",
        _REMOVED,
        "a row without clip_ratio",
    ),
    ("measurement-negative", "nmse", "/metrics/candidates/2/output_nmse_mean", -1.5, "a negative error"),
    ("measurement-negative", "transform", "/metrics/transform_milliseconds", -1, "a negative time"),
    ("cache-bytes", "one-too-high", "/metrics/cache_bytes", 1048577, "one byte more"),
    ("cache-bytes", "negative", "/metrics/cache_bytes", -1, "a negative size"),
    ("rotation-set", "negative", "/metrics/candidates/2/rotation", -1, "a negative rotation"),
    ("latency-not-positive", "baseline", "/metrics/baseline_decode_microseconds", 0, "no time"),
    ("latency-not-positive", "row", "/metrics/candidates/4/decode_microseconds_mean", 0, "no time in a row"),
    ("accuracy-out-of-range", "summary", "/metrics/baseline_task_accuracy", 1.1, "accuracy 1.1"),
    (
        "accuracy-out-of-range",
        "row",
        "/metrics/candidates/0/task_accuracy_mean",
        1.0000000000000002,
        "one ulp above 1",
    ),
    ("too-few-trials", "one", "/metrics/decode_trials", 1, "one trial"),
    ("candidate-count", "eight", "/metrics/candidate_count", 8, "eight counted, nine rows"),
    ("rotation-set", "twice", "/metrics/candidates/4/rotation", 3, "rotation 3 twice"),
    ("clip-ratio-out-of-range", "above-one", "/metrics/candidates/1/clip_ratio", 1.2, "clip 1.2"),
    ("clip-ratio-out-of-range", "zero", "/metrics/candidates/1/clip_ratio", 0, "clip 0"),
    ("calibration-not-positive", "zero", "/metrics/candidates/5/calibration_milliseconds", 0, "no time"),
    ("selected-rotation", "baseline", "/metrics/selected_rotation", 0, "the baseline selected"),
    ("selected-rotation", "no-row", "/metrics/selected_rotation", 9, "no such row"),
    ("baseline-summary", "rounded", "/metrics/baseline_output_nmse", 52.4, "a rounded figure"),
    ("candidate-summary", "other-row", "/metrics/candidate_output_nmse", 2.1123693, "figure of rotation 5"),
    ("transform-summary", "other-row", "/metrics/transform_milliseconds", 286.574164, "figure of rotation 5"),
    ("accuracy-impossible", "0-85", "/metrics/candidates/4/task_accuracy_mean", 0.85, "0.85 of 10 trials"),
    (
        "accuracy-deviation-impossible",
        "sample",
        "/metrics/candidates/4/task_accuracy_stddev",
        0.316227766,
        "n-1",
    ),
    ("deviation-impossible", "nmse", "/metrics/candidates/7/output_nmse_stddev", 5.9, "more than 3 means"),
    (
        "deviation-impossible",
        "decode",
        "/metrics/candidates/7/decode_microseconds_stddev",
        60000,
        "more than 3 means",
    ),
    ("witness-missing", "empty", "/witness_sha256", "", "no witness"),
    ("witness-missing", "missing", "/witness_sha256", _REMOVED, "witness removed"),
    ("witness-malformed", "upper-case", "/witness_sha256", published.WITNESS.upper(), "upper case"),
    ("witness-mismatch", "driver", "/runtime/driver", "580.159.04", "another driver"),
)

_MIB = 1 << 20


def _bytes_cases() -> Iterator[tuple[str, str, bytes, str]]:
    whole = text(published.observed())
    yield "empty-input", "zero-bytes", b"", "an empty file"
    yield (
        "record-too-large",
        "by-one",
        whole.rstrip() + b" " * (_MIB + 1 - len(whole.rstrip())),
        "1 MiB and one byte",
    )
    yield "utf16", "little-endian", whole.decode().encode("utf-16"), "UTF-16"
    yield "byte-order-mark", "utf8", b"\xef\xbb\xbf" + whole, "a byte-order mark"
    yield "not-utf8", "latin-1", whole.replace(b"Ubuntu", b"Ubunt\xfc"), "a Latin-1 letter"
    yield (
        "nested-too-deep",
        "33",
        whole.replace(b'"bits": 2', b'"bits": ' + b"[" * 31 + b"2" + b"]" * 31),
        "depth 33",
    )
    yield (
        "invalid-json",
        "comma",
        _spliced('"seed": 6260\n', '"seed": 6260,\n'),
        "a comma after the last member",
    )
    yield "trailing-content", "second-object", whole + b"{}\n", "an object after the record"
    yield (
        "duplicate-member",
        "escaped",
        _spliced('"seed": 6260', '"seed": 6260, "\\u0073eed": 1'),
        "seed twice",
    )
    yield "duplicate-member", "plain", _spliced('"seed": 6260', '"seed": 1, "seed": 6260'), "seed twice"
    yield "not-a-number", "nan", _spliced("51.571284", "NaN"), "NaN"
    yield "number-overflow", "1e400", _spliced("51.571284", "1e400"), "1e400"
    yield "number-underflow", "1e-400", _spliced("51.571284", "1e-400"), "1e-400"
    yield "negative-zero", "float", _spliced("51.571284", "-0.0"), "-0.0"
    yield "negative-zero", "underflow", _spliced("51.571284", "-1e-400"), "a number that rounds to -0"
    yield "integer-too-long", "21-digits", _spliced('"seed": 6260', f'"seed": {"1" * 21}'), "21 digits"
    yield "lone-surrogate", "high", _spliced("Ubuntu 22", "\\ud800 22"), "half a pair"
    yield "not-an-object", "array", b"[]\n", "an array"
    yield "fraction-in-integer", "2-0", _spliced('"bits": 2', '"bits": 2.0'), "2.0"
    yield "fraction-in-integer", "exponent", _spliced('"seed": 6260', '"seed": 626e1'), "626e1"


def _supported() -> Iterator[tuple[str, dict[str, Any], str]]:
    yield "l4-published", published.observed(), "the published record, rebuilt from its figures"
    yield (
        "l4-drifted-pin",
        published.observed(published.DRIFTED_PRODUCER),
        "the first publication: another producer",
    )
    smallest = published.observed()
    metrics = smallest["metrics"]
    metrics["candidates"] = [metrics["candidates"][0], {**metrics["candidates"][7], "rotation": 1}]
    metrics |= {"candidate_count": 2, "selected_rotation": 1}
    yield "two-candidates", published.sealed(smallest), "a baseline and one candidate"
    escapes = copy.deepcopy(published.observed())
    escapes["hardware"]["os"] = 'Übuntu <22> & "04"\\\t\u2028 \U0001d11e'
    yield (
        "escapes",
        published.sealed(escapes),
        "characters that the canonical form escapes, and some that it does not",
    )
    extremes = copy.deepcopy(published.observed())
    extremes["hardware"] |= {"seed": 2**64 - 1, "gpu_memory_bytes": 2**64 - 1}
    extremes["metrics"]["candidates"][1] |= {"output_nmse_mean": 1e-7, "output_nmse_stddev": 1e-6}
    extremes["metrics"]["candidates"][2] |= {"output_nmse_mean": 1.5e300, "output_nmse_stddev": 1e21}
    extremes["metrics"]["candidates"][3] |= {
        "output_nmse_mean": 1.2345678901234568e20,
        "output_nmse_stddev": 1.0,
    }
    extremes["metrics"]["candidates"][1]["output_nmse_stddev"] = 5e-324
    yield "extremes", published.sealed(extremes), "the largest seed, and numbers of every layout"


def _pinned() -> Iterator[Case]:
    record = text(published.observed())
    drifted = text(published.observed(published.DRIFTED_PRODUCER))
    yield Case(
        "supported/l4-published-pinned.json", record, None, None, "judged with pins that it meets", "met.toml"
    )
    for code, slug, data, pins, made in (
        (
            "pin-mismatch",
            "drifted-producer",
            drifted,
            "met.toml",
            "another producer digest than the pinned one",
        ),
        ("pinned-file-mismatch", "edited", record, "edited.toml", "the pinned file was edited"),
        ("pinned-file-missing", "moved", record, "moved.toml", "the pinned file is gone"),
    ):
        path = f"unsupported/{code}-{slug}.json"
        yield Case(path, data, code, "supported/l4-published-pinned.json", made, pins)


def cases() -> Iterator[Case]:
    """All records of the folder."""
    for slug, record, made in _supported():
        yield Case(f"supported/{slug}.json", text(record), None, None, made)
    yield Case(
        "delegate/modeled-evidence-without-search.json",
        text(published.modeled()),
        "modeled-evidence",
        None,
        "modeled figures, no search",
    )
    for code, slug, pointer, value, made in _EDITS:
        yield Case(_path(code, slug), _edited(pointer, value), code, TWIN, made)
    yield _one_candidate()
    for code, slug, data, made in _bytes_cases():
        yield Case(_path(code, slug), data, code, TWIN, made)
    yield from _pinned()


def _one_candidate() -> Case:
    record = next(record for slug, record, _ in _supported() if slug == "two-candidates")
    del record["metrics"]["candidates"][1]
    code = "too-few-candidates"
    return Case(_path(code, "one"), text(record), code, "supported/two-candidates.json", "the baseline alone")


def _path(code: str, slug: str) -> str:
    return f"{REASONS[FINDINGS[code].reason].outcome}/{code}-{slug}.json"


def manifest() -> bytes:
    """List of the records with what each must give."""
    rows = [
        {
            "path": case.path,
            "outcome": case.path.partition("/")[0],
            "reason": FINDINGS[case.finding].reason if case.finding else "KVINT2_SUPPORTED",
            "finding": case.finding,
            "twin": case.twin,
            "pins": case.pins,
            "made": case.made,
        }
        for case in cases()
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
