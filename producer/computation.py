"""Which computation a record names, whatever its contract."""

from typing import TYPE_CHECKING

from producer.record import RecordV2, computation_of
from producer.record_v2 import computation_of_v2

if TYPE_CHECKING:
    from producer.record import Record
    from producer.spec import ProtocolSpec, SliceSpec

__all__ = ["computation"]


def computation(record: "Record | RecordV2") -> "tuple[SliceSpec, ProtocolSpec]":
    """Return the slice and the protocol that a record names.

    Raises
    ------
    RecordError
        If it names none that is known here, one that is not allowed, or another recipe.
    """
    return computation_of_v2(record) if isinstance(record, RecordV2) else computation_of(record)
