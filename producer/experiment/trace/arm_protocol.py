"""Protocol of a trace's v2 record: arms, dialect, clip grid, windows, and the name of a trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer.errors import SpecError
from producer.quantize import get_pair
from producer.quantize.base import METADATA_BITS
from producer.scheme.encoder import RowEncoder
from producer.scheme.registry import FITTED_ROTATIONS, SCHEMES, Scheme
from producer.scheme.stored_cache import WindowFormat
from producer.trace.layer import LAST_QUERIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.quantize.base import FloatType
    from producer.trace.texts import SequenceInfo
    from producer.transform.transform_file import LayerTransforms

__all__ = [
    "ARM_NAMES",
    "DECODE_REPEATS",
    "DECODE_WARMUP",
    "DEFAULT_GRID",
    "TraceProtocol",
    "is_arm_of",
    "sequence_id",
    "sequence_ids",
]

#: What of a scheme decides its transforms, beside centring and windows.
_TRANSFORM_FIELDS = (
    "key_rotation",
    "value_rotation",
    "weights",
    "shrinkage",
    "key_ridge",
    "value_ridge",
    "balance",
)
#: Schemes whose transforms an arm of the same name has; each weights its covariances in another way.
_BALANCED = ("balanced", "balanced-plain", "balanced-attention", "balanced-attention-keys")

#: Names of the arms that are made from the calibration, or from nothing: a name is the same transforms in a scheme.
ARM_NAMES: tuple[str, ...] = tuple(dict.fromkeys([*FITTED_ROTATIONS, *_BALANCED]))

#: Clip ratios that are searched where none are given, for dialects that have a clip. At 2 bits the best share of a
#: range is often near a half, and a record is refused where the best ratio is the last of the grid.
DEFAULT_GRID = (1.0, 0.98, 0.96, 0.94, 0.92, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.4, 0.3)

DECODE_WARMUP = 1
DECODE_REPEATS = 3


def sequence_id(sequence: SequenceInfo) -> str:
    """Return the id of a sequence in a record: text, first token, tokens, and the queries that are read."""
    return f"{sequence.name}@{_place(sequence)}"


def _place(sequence: SequenceInfo) -> str:
    return f"{sequence.first_token}+{sequence.tokens}/last{LAST_QUERIES}"


def sequence_ids(
    calibration: Sequence[SequenceInfo], evaluation: Sequence[SequenceInfo]
) -> tuple[list[str], list[str]]:
    """Return the ids of the sequences of two traces in a record.

    Two texts of one name, in whatever folders and traces, are two: their names get the beginning of their digest.
    """
    texts: dict[str, set[str]] = {}
    for sequence in (*calibration, *evaluation):
        texts.setdefault(sequence.name, set()).add(sequence.text_sha256)

    def named(sequence: SequenceInfo) -> str:
        if len(texts[sequence.name]) == 1:
            return sequence_id(sequence)
        return f"{sequence.name}#{sequence.text_sha256[:8]}@{_place(sequence)}"

    return [named(sequence) for sequence in calibration], [named(sequence) for sequence in evaluation]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProtocol:
    """What is compared, and how.

    Attributes
    ----------
    arms : tuple of str
        Ids of the arms, the baseline first: names in `ARM_NAMES`, or of fitted files.
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
        If an id is repeated, there is no arm beside the baseline, the dialect is not of 2 bits, or the grid or the
        windows' type is not one that a record can have.
    """

    arms: tuple[str, ...]
    dialect: str
    clip_grid: tuple[float, ...]
    center_keys: bool = False
    group_size: int = 0
    sink: int = 64
    recent: int = 256
    window_dtype: FloatType = "bfloat16"

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
        if any(one.numerics.group_axis == "heads" for one in get_pair(self.dialect)):
            raise SpecError(
                f"dialect {self.dialect!r} is not allowed: its groups span the heads, and a record's divide one"
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

    def encoders(self, rotations: LayerTransforms, clip_ratio: float) -> tuple[RowEncoder, RowEncoder]:
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
        """Return the scheme whose fit gives the transforms of a named arm: those of the scheme of that name.

        Raises
        ------
        SpecError
            If there is no such arm.
        """
        if rotation not in ARM_NAMES:
            raise SpecError(f"arm {rotation!r} is not allowed: one of {', '.join(ARM_NAMES)}")
        key, value = get_pair(self.dialect)
        return Scheme(
            name=rotation,
            **_transforms_of(rotation),
            center_keys=self.center_keys,
            key_dialect=key.name,
            value_dialect=value.name,
            key_clip=1.0,
            value_clip=1.0,
            group_size=self.group_size,
            sink=self.sink,
            recent=self.recent,
        )


def _transforms_of(name: str) -> dict[str, Any]:
    """Return the fields of a named arm that decide its transforms."""
    plain = Scheme(name=name, key_rotation=name, value_rotation=name)  # type: ignore[arg-type]
    scheme = SCHEMES[name] if name in _BALANCED else plain
    return {field: getattr(scheme, field) for field in _TRANSFORM_FIELDS}


def is_arm_of(name: str, scheme: Scheme) -> bool:
    """Return whether a scheme has the transforms of a named arm or scheme, or the name stands for none."""
    if name in ARM_NAMES:
        expected = _transforms_of(name)
    elif name in SCHEMES:
        expected = {field: getattr(SCHEMES[name], field) for field in _TRANSFORM_FIELDS}
    else:
        return True
    return all(getattr(scheme, field) == value for field, value in expected.items())


def _words(grid: Sequence[float]) -> str:
    return ", ".join(f"{ratio:g}" for ratio in grid) or "of no ratio"
