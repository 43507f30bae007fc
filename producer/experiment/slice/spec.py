"""Frozen specifications of a slice run, each validated when it is made.

`SliceSpec` says which synthetic attention slice, `SliceProtocol` how it is searched and evaluated. The
protocol is a set of *properties*, so that the published run and the sound one are two values of one type
and an audit can vary one property at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from producer.errors import SpecError
from producer.numerics.mt19937 import MAX_SEED

__all__ = [
    "MAX_SEQ_LEN",
    "PAIRED",
    "PROTOCOLS",
    "PUBLISHED",
    "ClipGrid",
    "OutputRotation",
    "Selection",
    "SignSource",
    "SliceProtocol",
    "SliceSpec",
]

MAX_SEQ_LEN = 1_048_576
_MAX_HEADS = 1024
_MAX_DIM = 65_536

OutputRotation: TypeAlias = Literal["inverse", "signs-last"]
SignSource: TypeAlias = Literal["drawn", "index-parity"]
Selection: TypeAlias = Literal["calibration", "evaluation"]


def require_between(value: int, name: str, low: int, high: int) -> None:
    """Raise `SpecError` unless `value` is an int in `low` … `high`."""
    if type(value) is not int or not low <= value <= high:
        raise SpecError(f"{name} {value!r} is not allowed: an integer {low} … {high}")


def require_one_of(value: str, name: str, literal: object) -> None:
    """Raise `SpecError` unless `value` is a member of a `Literal` type."""
    allowed = get_args(literal)
    if value not in allowed:
        raise SpecError(f"{name} {value!r} is not allowed: one of {', '.join(map(str, allowed))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSpec:
    """One synthetic attention slice: keys, values, output weights and queries of one layer.

    Attributes
    ----------
    seq_len : int
        Cached tokens T, 1 … 1,048,576.
    num_kv_heads : int
        KV heads H, each with one query head.
    head_dim : int
        Channels of a head d, a multiple of 4 (four codes are packed in a byte).
    output_dim : int
        Columns of W_O.
    seed : int
        Seed word of the random stream, 1 … 2³² - 1 (the contract has no seed 0).
    outlier_stride, outlier_factor : int, float
        Every `outlier_stride`-th element of flat K and flat V, from element 0 on, is multiplied by
        `outlier_factor`. The flat order is (token, head, channel).
    """

    seq_len: int = 4096
    num_kv_heads: int = 4
    head_dim: int = 128
    output_dim: int = 128
    seed: int = 6260
    outlier_stride: int = 9973
    outlier_factor: float = 30.0

    def __post_init__(self) -> None:
        require_between(self.seq_len, "seq_len", 1, MAX_SEQ_LEN)
        require_between(self.num_kv_heads, "num_kv_heads", 1, _MAX_HEADS)
        require_between(self.head_dim, "head_dim", 4, _MAX_DIM)
        if self.head_dim % 4:
            raise SpecError(
                f"head_dim {self.head_dim} is not allowed: a multiple of 4, a byte holds four codes"
            )
        require_between(self.output_dim, "output_dim", 1, _MAX_DIM)
        require_between(self.seed, "seed", 1, MAX_SEED)
        require_between(self.outlier_stride, "outlier_stride", 1, 2**63 - 1)
        if not 0 < self.outlier_factor < 1e6:
            raise SpecError(f"outlier_factor {self.outlier_factor!r} is not allowed: above 0, below 1e6")

    @property
    def row_width(self) -> int:
        """Channels of one token over all heads, H·d."""
        return self.num_kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipGrid:
    """The clip ratios of a search.

    Attributes
    ----------
    ratios : tuple of float
        Falling, each in (0, 1]. The upper end 1 is the end of the scale: nothing is clipped there.
    extend : bool
        Whether the grid goes on below its last ratio while that ratio is the best one.
    step : float
        Distance of the ratios that an extension adds; half of the last ratio where that is less.
    floor : float
        No extension goes below this ratio.
    """

    ratios: tuple[float, ...]
    extend: bool
    step: float = 0.05
    floor: float = 0.005

    def __post_init__(self) -> None:
        if not self.ratios:
            raise SpecError("the clip grid is empty: at least one ratio in (0, 1] is needed")
        for ratio in self.ratios:
            if not 0 < ratio <= 1:
                raise SpecError(f"clip ratio {ratio!r} is not allowed: above 0, at most 1")
        if any(low >= high for high, low in zip(self.ratios, self.ratios[1:], strict=False)):
            raise SpecError(f"clip ratios {self.ratios} are not allowed: each below the one before it")
        if not 0 < self.step < 1:
            raise SpecError(f"clip step {self.step!r} is not allowed: above 0, below 1")
        if not 0 < self.floor < 1:
            raise SpecError(f"clip floor {self.floor!r} is not allowed: above 0, below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceProtocol:
    """How candidates are searched, selected and evaluated.

    Attributes
    ----------
    name : str
        The protocol's name in records.
    calibration_queries, evaluation_queries : int
        Queries of the clip search, and of the evaluation of each candidate (``decode_trials``).
    group_size : int
        Channels that share a scale; must divide head_dim.
    num_rotations : int
        Rotated candidates beside the identity.
    output_rotation : {"inverse", "signs-last"}
        How W_O is rotated: by the inverse of the value rotation, or as the published run did it.
    sign_source : {"drawn", "index-parity"}
        Distinct sign vectors from a seeded stream, or the published function of channel and index.
    selection : {"calibration", "evaluation"}
        Whether the selected rotation has the least calibration objective, or the least evaluation mean.
    shared_evaluation : bool
        Whether all candidates see the same evaluation queries.
    clips : ClipGrid
        The clip ratios.
    quality_threshold : float
        A trial passes the one-bit quality check when its NMSE is below this…
    quality_inclusive : bool
        … or equal to it, if so.
    bootstrap_resamples : int
        Resamples of the paired differences; 0 for none.
    """

    name: str
    calibration_queries: int
    evaluation_queries: int
    group_size: int = 128
    num_rotations: int = 8
    output_rotation: OutputRotation
    sign_source: SignSource
    selection: Selection
    shared_evaluation: bool
    clips: ClipGrid
    quality_threshold: float
    quality_inclusive: bool
    bootstrap_resamples: int = field(default=2000)

    def __post_init__(self) -> None:
        require_between(self.calibration_queries, "calibration_queries", 1, 4096)
        require_between(self.evaluation_queries, "evaluation_queries", 2, 4096)
        require_between(self.group_size, "group_size", 1, _MAX_DIM)
        require_between(self.num_rotations, "num_rotations", 1, 255)
        require_one_of(self.output_rotation, "output_rotation", OutputRotation)
        require_one_of(self.sign_source, "sign_source", SignSource)
        require_one_of(self.selection, "selection", Selection)
        require_between(self.bootstrap_resamples, "bootstrap_resamples", 0, 1_000_000)
        if not self.quality_threshold > 0:
            raise SpecError(f"quality_threshold {self.quality_threshold!r} is not allowed: above 0")


#: The published computation, its faults included (docs/results/published-run.md).
PUBLISHED = SliceProtocol(
    name="published",
    calibration_queries=1,
    evaluation_queries=10,
    output_rotation="signs-last",
    sign_source="index-parity",
    selection="evaluation",
    shared_evaluation=False,
    clips=ClipGrid(ratios=(1.0, 0.95, 0.9, 0.85, 0.8), extend=False),
    quality_threshold=10.0,
    quality_inclusive=True,
    bootstrap_resamples=0,
)

#: The sound protocol, and the default. An all-zero output has NMSE 1, so the quality check asks for less.
PAIRED = SliceProtocol(
    name="paired",
    calibration_queries=16,
    evaluation_queries=64,
    output_rotation="inverse",
    sign_source="drawn",
    selection="calibration",
    shared_evaluation=True,
    clips=ClipGrid(ratios=(1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6), extend=True),
    quality_threshold=1.0,
    quality_inclusive=False,
)

PROTOCOLS = {spec.name: spec for spec in (PUBLISHED, PAIRED)}
