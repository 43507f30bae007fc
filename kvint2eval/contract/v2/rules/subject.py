"""The subject of a rule of v2, and the helper that makes its finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from kvint2eval.contract.v2.canonical import canonical_v2_of_layout
from kvint2eval.files.digest import sha256_hex
from kvint2eval.strict_json.describe import describe
from kvint2eval.verdict import Binding, ClaimVerdict, Finding

if TYPE_CHECKING:
    from kvint2eval.codes import Code
    from kvint2eval.contract.v2 import _decoder as layout
    from kvint2eval.pins.pins import Pins
    from kvint2eval.pins.root import Root

__all__ = ["RuleV2", "SubjectV2", "finding"]


class SubjectV2:
    """A record under judgement.

    Parameters
    ----------
    record
        The record's layout.
    canonical
        Its RFC 8785 form without the witness, where it was made already.
    pins, root
        What the adjudicator was given to hold the record against, or None.
    """

    __slots__ = (
        "_arms",
        "_canonical",
        "_witness",
        "bindings",
        "claims",
        "intervals",
        "pins",
        "record",
        "root",
    )

    def __init__(
        self,
        record: layout.Record,
        canonical: bytes | None = None,
        *,
        pins: Pins | None = None,
        root: Root | None = None,
    ) -> None:
        self.record = record
        self.pins = pins
        self.root = root
        self.bindings: tuple[Binding, ...] | None = None
        self.claims: tuple[ClaimVerdict, ...] | None = None
        self.intervals: dict[int, tuple[float, float]] = {}
        self._canonical = canonical
        self._witness = ""
        self._arms: dict[str, tuple[int, layout.Arm]] | None = None

    @property
    def canonical(self) -> bytes:
        """RFC 8785 form of the record without its witness."""
        if self._canonical is None:
            self._canonical = canonical_v2_of_layout(self.record)
        return self._canonical

    @property
    def witness(self) -> str:
        """Witness digest as computed."""
        if not self._witness:
            self._witness = sha256_hex(self.canonical)
        return self._witness

    @property
    def computed_witness(self) -> str:
        """Witness digest if it was computed, else empty."""
        return self._witness

    @property
    def producers(self) -> list[tuple[str, str]]:
        """Pointer and digest of every producer of the record, which a policy has to allow."""
        artifacts = enumerate(self.record.artifacts)
        return [
            (f"/artifacts/{index}/sha256", one.sha256) for index, one in artifacts if one.role == "producer"
        ]

    @property
    def measurements(self) -> layout.Measurements:
        """The measurements; only for the rules from step 8 on, step 7 having found them."""
        return cast("layout.Measurements", self.record.measurements)

    @property
    def arms(self) -> dict[str, tuple[int, layout.Arm]]:
        """The arms with their places, by rotation."""
        if self._arms is None:
            arms = self.measurements.arms
            self._arms = {arm.rotation: (index, arm) for index, arm in enumerate(arms)}
        return self._arms


RuleV2 = Callable[[SubjectV2], Finding | None]


def finding(code: Code, pointer: str, value: Any, allowed: str) -> Finding:
    """Finding about one member."""
    return Finding(code=code, pointer=pointer, found=describe(value), allowed=allowed)
