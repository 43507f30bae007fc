"""Test vectors under the other dialects and constructions of the contract, and what is refused of them.

As those of `tests.tools.regen.vector_v2` they are no runs: the figures are the vector's; recipe and bytes are those
of the dialect.
"""

import copy
from collections.abc import Iterator
from typing import Any

from kvint2eval.contract.v2.registry import DIALECTS, EARLIER_FINGERPRINTS, KEY_GRANULARITIES
from tests.tools.regen.edits_v2 import reclaimed
from tests.tools.regen.vector_v2 import sealed, storage, vector

Record = dict[str, Any]

_BITS = {"float32": 32, "float16": 16, "bfloat16": 16}
SINKS, RECENT = 64, 256
# The vector's 704 quantized tokens are eleven groups of 64 along the tokens.
_GROUPS = {"kivi": 64, "kivi-float32": 64}


def stored(name: str, group_size: int = 0, sinks: int = SINKS + RECENT) -> Record:
    """Bytes of the vector's cache under a dialect."""
    entry, group_size = DIALECTS[name], group_size or _GROUPS.get(name, 128)
    bits = entry["metadata_scalars"] * _BITS[entry["metadata_dtype"]] * 128 // group_size
    return storage(1024, 4, 128, sinks=sinks, metadata_bits=bits)


def under(name: str) -> Record:
    """The vector under a dialect, not sealed; one that has no clip searches the ratio 1 alone."""
    record = copy.deepcopy(vector())
    recipe = record["recipe"]
    recipe["dialect"] = {"id": name} | DIALECTS[name]
    recipe["key_granularity"] = KEY_GRANULARITIES.get(name, "per-token-group")
    recipe["group_size"] = _GROUPS.get(name, 128)
    record["measurements"]["storage"] = stored(name)
    if DIALECTS[name]["clip_kind"] == "none":
        recipe |= {"clip_grid": [1.0], "clip_grid_size": 1}
        for arm in record["measurements"]["arms"]:
            search = arm["calibration"]
            best = search["objective"].index(min(search["objective"]))
            for column in ("objective", "query_nmse"):
                search[column] = [search[column][best]]
            search["clip_ratio"] = [1.0]
            arm["clip_ratio"] = 1.0
    return reclaimed(record)


def _constructed(*constructions: str, method: str) -> Record:
    """The vector with rotations of other constructions, without seeds."""
    record = copy.deepcopy(vector())
    record["recipe"]["method"] = method
    for rotation, construction in zip(record["recipe"]["rotations"], constructions, strict=True):
        rotation |= {"construction": construction, "seed": None}
    return record


def supported() -> Iterator[tuple[str, Record, str]]:
    """Slug, record and how it was made."""
    for name in DIALECTS:
        if name != "symmetric-absmax-clip":
            yield f"dialect-{name}", sealed(under(name)), f"the dialect {name}"
    for name, fingerprint in EARLIER_FINGERPRINTS.items():
        record = under(name)
        record["recipe"]["dialect"]["fingerprint_sha256"] = fingerprint
        yield f"dialect-{name}-earlier", sealed(record), f"the dialect that {name} was before"
    yield (
        "balanced",
        sealed(_constructed("identity", "balanced", "quarot", method="balanced")),
        "a balanced transform beside a rotation",
    )
    yield (
        "file",
        sealed(_constructed("identity", "file", "quarot", method="file")),
        "a transform that was read from a file",
    )
    yield (
        "optr-oscar",
        sealed(_constructed("quarot", "optr", "oscar", method="optr")),
        "a learned rotation against two others",
    )


def _grouped(record: Record, group_size: int) -> Record:
    name = record["recipe"]["dialect"]["id"]
    record["recipe"]["group_size"] = group_size
    record["measurements"]["storage"] = stored(name, group_size)
    return record


def _searched(record: Record) -> Record:
    """A search over ratios that the dialect does not know."""
    other = vector()
    record["recipe"] |= {name: other["recipe"][name] for name in ("clip_grid", "clip_grid_size")}
    for arm, searched in zip(record["measurements"]["arms"], other["measurements"]["arms"], strict=True):
        arm["calibration"], arm["clip_ratio"] = searched["calibration"], searched["clip_ratio"]
    return record


def _ragged(record: Record) -> Record:
    record["recipe"]["recent_tokens"] = RECENT - 6
    record["measurements"]["storage"] = stored("kivi", sinks=SINKS + RECENT - 6)
    return record


def _by_token(record: Record) -> Record:
    record["recipe"]["key_granularity"] = "per-token-group"
    return record


def _by_channel(record: Record) -> Record:
    record["recipe"]["key_granularity"] = "per-channel-group"
    return record


def _member(name: str, value: Any):
    def change(record: Record) -> Record:
        record["recipe"]["dialect"][name] = value
        return record

    return change


def refused() -> Iterator[tuple[str, str, str, Record, str]]:
    """Finding, slug, dialect of the twin, record, and how it differs from the twin."""
    other = DIALECTS["oscar-flush"]["fingerprint_sha256"]
    for code, slug, name, change, made in (
        ("clip-grid-size", "no-clip", "lloyd-max", _searched, "a search of a clip that is none"),
        ("group-size-not-divisor", "row", "quarot-token", lambda r: _grouped(r, 64), "two groups a row"),
        ("group-size-not-divisor", "tokens", "kivi", _ragged, "710 tokens in groups of 64"),
        ("granularity-unknown", "kivi-by-token", "kivi", _by_token, "KIVI's keys by token"),
        ("granularity-unknown", "by-channel", "oscar-prefill", _by_channel, "OSCAR's keys by channel"),
        ("dialect-differs", "packing", "oscar-prefill", _member("packing", "consecutive"), "other packing"),
        (
            "fingerprint-differs",
            "flush",
            "oscar-prefill",
            _member("fingerprint_sha256", other),
            "the quantizer of generated tokens",
        ),
    ):
        yield code, slug, name, sealed(change(under(name))), made
