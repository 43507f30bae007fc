"""The slice and protocol that a v1 or v2 record names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.record.reading import RecordV2
from producer.record.v1 import computation_of
from producer.record.v2_slice import computation_of_v2

if TYPE_CHECKING:
    from producer.experiment.slice.spec import SliceProtocol, SliceSpec
    from producer.record.v1 import Record

__all__ = ["computation"]


def computation(record: Record | RecordV2) -> tuple[SliceSpec, SliceProtocol]:
    """Return the slice and the protocol that a record names.

    Raises
    ------
    RecordError
        If it names none that is known here, one that is not allowed, or another recipe.
    """
    return computation_of_v2(record) if isinstance(record, RecordV2) else computation_of(record)
