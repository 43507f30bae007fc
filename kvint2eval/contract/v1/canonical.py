"""Canonical bytes of a v1 record, over which its witness digest is taken.

v1 has a form of its own: compact JSON in declared order with an empty witness. The C encoder of msgspec writes
it, and the few places where its layout differs from ECMAScript's are fixed in the text: writing each number
from Python would take ten times as long.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from kvint2eval.contract.v1 import _decoder as layout
from kvint2eval.contract.v1.reader import read_v1
from kvint2eval.files.digest import sha256_hex
from kvint2eval.strict_json.rfc8785 import es_number

if TYPE_CHECKING:
    from kvint2eval.contract.v1 import model as v1

__all__ = ["EMPTY_WITNESS", "canonical_v1", "canonical_v1_of_layout", "witness_v1"]

_ENCODER = msgspec.json.Encoder()
_METRICS = b',"metrics":'
_WITNESS = b',"witness_sha256":'
EMPTY_WITNESS = b',"witness_sha256":""}'

_FRACTION_ZERO = re.compile(rb"\.0([,}])")
_EXPONENT_NUMBER = re.compile(rb"(?<=:)-?[0-9.]+e[+-]?[0-9]+")
# Beyond what JSON must escape: characters that would be markup or a line end inside HTML or JavaScript.
_MARKUP = re.compile(rb"[<>&]|\xe2\x80[\xa8\xa9]")
_MARKUP_ESCAPES = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    b"\xe2\x80\xa8": b"\\u2028",
    b"\xe2\x80\xa9": b"\\u2029",
}

# How often the letter e stands in the member names: one more means that a number has an exponent.
_E_IN_METRICS = sum(name.count("e") for name in layout.Metrics.__struct_fields__)
_E_IN_CANDIDATE = sum(name.count("e") for name in layout.Candidate.__struct_fields__)


def canonical_v1_of_layout(record: layout.Record) -> bytes:
    """Canonical bytes of a decoded record, its witness empty and its absent members as section 3 writes them."""
    metrics = record.metrics
    if metrics.candidates is UNSET or UNSET in (
        metrics.candidate_count,
        metrics.decode_trials,
        metrics.selected_rotation,
    ):
        record = replace(record, metrics=_with_absent_members(metrics))
    encoded = _ENCODER.encode(record)
    # Neither separator can stand inside a string, where its quotes would be escaped.
    head, _, tail = encoded.partition(_METRICS)
    figures, _, _ = tail.rpartition(_WITNESS)
    if b"<" in head or b">" in head or b"&" in head or not head.isascii():
        head = _MARKUP.sub(lambda match: _MARKUP_ESCAPES[match[0]], head)
    if _FRACTION_ZERO.search(figures):
        figures = _FRACTION_ZERO.sub(_without_fraction, figures)
    rows = metrics.candidates
    if figures.count(b"e") != _E_IN_METRICS + (_E_IN_CANDIDATE * len(rows) if rows else 0):
        figures = _EXPONENT_NUMBER.sub(lambda match: es_number(float(match[0])).encode(), figures)
    return b"".join((head, _METRICS, figures, EMPTY_WITNESS))


def _without_fraction(match: re.Match[bytes]) -> bytes:
    return match[1]


def _with_absent_members(metrics: layout.Metrics) -> layout.Metrics:
    return replace(
        metrics,
        candidate_count=0 if metrics.candidate_count is UNSET else metrics.candidate_count,
        decode_trials=0 if metrics.decode_trials is UNSET else metrics.decode_trials,
        selected_rotation=0 if metrics.selected_rotation is UNSET else metrics.selected_rotation,
        candidates=None if metrics.candidates is UNSET else metrics.candidates,
    )


def canonical_v1(record: v1.Record) -> bytes:
    """Canonical bytes of a record, its witness empty.

    Parameters
    ----------
    record
        The record; its `witness_sha256` is not looked at.

    Returns
    -------
    bytes
        ASCII and UTF-8 JSON in declared order, as section 3 of the contract lays it out.
    """
    layout_of_record, _ = read_v1(record.model_dump(mode="json"))
    return canonical_v1_of_layout(layout_of_record)


def witness_v1(record: v1.Record) -> str:
    """Witness digest of a record: SHA-256 of its canonical bytes, 64 lower-case hexadecimal characters."""
    return sha256_hex(canonical_v1(record))
