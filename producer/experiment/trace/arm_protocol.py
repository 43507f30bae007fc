"""What is compared on a trace in a v2 record: arms, dialect, clip grid, windows, and what a trial is called."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from producer.errors import SpecError
from producer.quantize import get_pair
from producer.quantize.base import METADATA_BITS
from producer.scheme.encoder import RowEncoder
from producer.scheme.registry import RotationName, Scheme
from producer.scheme.stored_cache import WindowFormat
from producer.trace.layer import LAST_QUERIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.quantize.base import FloatType
    from producer.trace.texts import SequenceInfo
    from producer.transform.transform_file import LayerTransforms

__all__ = [
    "DECODE_REPEATS",
    "DECODE_WARMUP",
    "DEFAULT_GRID",
    "ROTATION_NAMES",
    "TraceProtocol",
    "sequence_id",
]

#: Names of the rotations that are made from the calibration, or from nothing.
ROTATION_NAMES: tuple[str, ...] = get_args(RotationName)

#: Clip ratios that are searched where none are given, for dialects that have a clip.
DEFAULT_GRID = (1.0, 0.98, 0.96, 0.94, 0.92, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)

DECODE_WARMUP = 1
DECODE_REPEATS = 3


def sequence_id(sequence: "SequenceInfo") -> str:
    """Return the id of a sequence in a record: text, first token, tokens, and the queries that are read."""
    return f"{sequence.name}@{sequence.first_token}+{sequence.tokens}/last{LAST_QUERIES}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProtocol:
    """What is compared, and how.

    Attributes
    ----------
    arms : tuple of str
        Ids of the arms, the baseline first: names in `ROTATION_NAMES`, or of fitted files.
    dialect : str
        A name in `producer.quantize.DIALECTS` or `PAIRS`, of 2 bits.
    clip_grid : tuple of float
        Clip ratios of keys and values alike, falling.
    center_keys : bool
        Whether every arm subtracts the calibration's mean key.
    group_size : int
        Values that share a scale; 0 for the head dimension.
    sink, recent : int
        First and last tokens that stay unquantized.
    window_dtype : {"float32", "float16", "bfloat16"}

    Raises
    ------
    SpecError
        If an id stands twice, no arm stands beside the baseline, the dialect is not of 2 bits, or the grid or the
        windows' type is not one that a record can have.
    """

    arms: tuple[str, ...]
    dialect: str
    clip_grid: tuple[float, ...]
    center_keys: bool = False
    group_size: int = 0
    sink: int = 64
    recent: int = 256
    window_dtype: "FloatType" = "bfloat16"

    def __post_init__(self) -> None:
        if len(set(self.arms)) != len(self.arms) or len(self.arms) < 2:
            raise SpecError(f"arms {', '.join(self.arms)} are not allowed: a baseline and others, each once")
        if self.window_dtype not in METADATA_BITS:
            raise SpecError(f"windows in {self.window_dtype!r} are not allowed: {', '.join(METADATA_BITS)}")
        numerics = get_pair(self.dialect)[0].numerics
        if numerics.bits != 2:
            raise SpecError(
                f"dialect {self.dialect!r} is not allowed: it has {numerics.bits} bits, a record 2"
            )
        grid = self.clip_grid
        if numerics.clip_kind == "none":
            if grid != (1.0,):
                raise SpecError(
                    f"clip grid {_words(grid)} is not allowed: {self.dialect} has no clip, only 1"
                )
        elif (
            len(grid) < 3
            or any(not 0 < one <= 1 for one in grid)
            or sorted(set(grid), reverse=True) != [*grid]
        ):
            raise SpecError(
                f"clip grid {_words(grid)} is not allowed: at least 3 ratios, falling, each in (0, 1]"
            )

    @property
    def windows(self) -> WindowFormat:
        """The windows as contract v2 has them: rounded to their type, and whole groups between them."""
        return WindowFormat(sink=self.sink, recent=self.recent, dtype=self.window_dtype)

    def encoders(self, rotations: "LayerTransforms", clip_ratio: float) -> "tuple[RowEncoder, RowEncoder]":
        """Return what codes keys and values: one clip ratio for all heads, codes of the nearest level."""
        key, value = get_pair(self.dialect)
        group_size = self.group_size or rotations.key.head_dim
        return (
            RowEncoder(
                dialect=key,
                transform=rotations.key,
                mean=rotations.key_mean,
                clips=(clip_ratio,),
                group_size=group_size,
            ),
            RowEncoder(dialect=value, transform=rotations.value, clips=(clip_ratio,), group_size=group_size),
        )

    def scheme(self, rotation: str) -> Scheme:
        """Return the scheme whose fit gives a named rotation."""
        if rotation not in ROTATION_NAMES:
            raise SpecError(f"arm {rotation!r} is not allowed: one of {', '.join(ROTATION_NAMES)}")
        key, value = get_pair(self.dialect)
        return Scheme(
            name=rotation,
            key_rotation=rotation,  # type: ignore[arg-type]
            value_rotation=rotation,  # type: ignore[arg-type]
            center_keys=self.center_keys,
            key_dialect=key.name,
            value_dialect=value.name,
            key_clip=1.0,
            value_clip=1.0,
            group_size=self.group_size,
            sink=self.sink,
            recent=self.recent,
        )


def _words(grid: "Sequence[float]") -> str:
    return ", ".join(f"{ratio:g}" for ratio in grid) or "of no ratio"
