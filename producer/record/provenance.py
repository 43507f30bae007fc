"""Provenance of a record: the producer's identity, the digest of its source, delegation."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from kvint2eval import __version__
from kvint2eval.codes import REASONS, Reason
from kvint2eval.contract.v1.model import Pin
from kvint2eval.files.digest import sha256_hex, sha256_text_file

if TYPE_CHECKING:
    from producer.experiment.slice.spec import SliceProtocol, SliceSpec

__all__ = [
    "PRODUCER_ID",
    "RECIPE_ARTIFACT",
    "Delegation",
    "delegation",
    "package_version",
    "source_digest",
    "source_listing",
    "specification_digest",
]

PRODUCER_ID = "kvint2eval-producer"


# The paper whose recipe is run, with the digest that the published record gives it.
RECIPE_ARTIFACT = Pin(
    id="arxiv:2608.02691",
    version="v2",
    sha256="6b4f915c212b0b3afaa4b5a8334805ff97e3c1c136c38d6f29d329ad024b9331",
)


def package_version() -> str:
    """Return the version of the distribution."""
    return __version__


@dataclasses.dataclass(frozen=True, slots=True)
class Delegation:
    """A typed result that hands the work on: the adjudicator's outcome and reason, and why."""

    outcome: str
    reason: str
    detail: str


def delegation(detail: str, *, modeled: bool = False) -> Delegation:
    """Return the delegate result for work that needs CUDA, or for figures that were modeled."""
    reason = Reason.MODELED_NOT_OBSERVED if modeled else Reason.RUNTIME_DELEGATION_REQUIRED
    return Delegation(REASONS[reason].outcome.value, reason.value, detail)


def source_listing() -> str:
    """Return the listing of the producer's source whose digest is `source_digest`."""
    root = Path(__file__).parents[1]
    files = [path for path in root.rglob("*") if path.suffix in {".py", ".cu", ".cuh"}]
    names = {(Path("producer") / path.relative_to(root)).as_posix(): path for path in files}
    return "".join(f"{sha256_text_file(names[name])}  {name}\n" for name in sorted(names))


def source_digest() -> str:
    """Return the digest of the producer's source, reproducible from a checkout.

    Notes
    -----
    SHA-256 of a listing: for every ``.py``, ``.cu`` and ``.cuh`` file below ``producer/``, in byte order of its
    path, the SHA-256 of its text in LF form, two spaces, its path from the root of the project with ``/``, and a
    line end.
    In a checkout with LF line ends that is::

        find producer -name '*.py' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort | xargs sha256sum | sha256sum
    """
    return sha256_hex(source_listing().encode())


def specification_digest(spec: SliceSpec, protocol: SliceProtocol) -> str:
    """Return the digest of what a run computes: of the compact JSON of both specifications, names sorted."""
    both = {"slice": dataclasses.asdict(spec), "protocol": dataclasses.asdict(protocol)}
    return hashlib.sha256(json.dumps(both, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
