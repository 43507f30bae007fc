"""Arms of a comparison that come from fitted files: balanced, trained, or any other transforms."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer.errors import SpecError
from producer.experiment.trace.arm_protocol import ARM_NAMES, is_arm_of
from producer.scheme.fitted_file import REFINED, read_fitted
from producer.scheme.registry import SCHEMES
from producer.trace.texts import require_disjoint
from producer.transform.transform_file import SIDES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from producer.trace.files import Trace
    from producer.trace.texts import SequenceInfo
    from producer.transform.transform_file import LayerTransforms

__all__ = ["FittedArm", "read_arms"]


@dataclass(frozen=True, slots=True)
class FittedArm:
    """An arm that comes from a file.

    Attributes
    ----------
    sha256 : str
        Of the file.
    layers : mapping of int to LayerTransforms
        The transforms of every layer of the model.
    calibration : tuple of SequenceInfo
        What they were fitted to.
    """

    sha256: str
    layers: Mapping[int, LayerTransforms]
    calibration: tuple[SequenceInfo, ...]


def read_arms(paths: Sequence[Path], evaluation: Trace, others: Collection[str] = ()) -> dict[str, FittedArm]:
    """Return the arms of fitted files by name.

    Parameters
    ----------
    paths : sequence of Path
        An arm is called as its file, without the ending. Clip ratios by head, dialects and windows of a file are not
        looked at: in a comparison they are one for all arms.
    evaluation : Trace
        Of the model that the files were fitted to, of other texts.
    others : collection of str
        Names of the arms that come from no file.

    Raises
    ------
    SpecError
        If two files, or a file and another arm, have one name; if a file has the name of a scheme or a named arm and
        holds other transforms than those; if a fit has seen a text of the evaluation, or its
        codes are rounded with error feedback.
    FileFormatError, OSError, ExtraMissingError
        See `producer.scheme.fitted_file.read_fitted`.
    """
    arms: dict[str, FittedArm] = {}
    for path in paths:
        if path.stem in arms or path.stem in others:
            raise SpecError(
                f"{path}: an arm named {path.stem!r} is there already; give the file another name"
            )
        scheme, layers, calibration = read_fitted(path, evaluation.model)
        if scheme.rounding == "feedback":
            raise SpecError(
                f"{path}: error feedback is not allowed in a record: its quantizer rounds to the nearest level; "
                "`evaluate` measures it"
            )
        is_refined = any(getattr(layers[0].rotations, side).kind in REFINED for side in SIDES)
        if not is_arm_of(path.stem, scheme) or (
            is_refined and (path.stem in SCHEMES or path.stem in ARM_NAMES)
        ):
            found = f"scheme {scheme.name!r}" + (" with learned corrections" if is_refined else "")
            raise SpecError(
                f"{path}: an arm named {path.stem!r} is not allowed for this file, which holds {found}: a name stands "
                "for one computation; give the file another name"
            )
        require_disjoint(calibration, evaluation.sequences)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        rotations = {index: layer.rotations for index, layer in layers.items()}
        arms[path.stem] = FittedArm(digest, rotations, calibration)
    return arms
