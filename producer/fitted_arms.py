"""Arms of a comparison that are read from fitted files: balanced and trained transforms, or any other."""

import hashlib
from typing import TYPE_CHECKING

from producer.errors import SpecError
from producer.fitted import read_fitted
from producer.trace.texts import require_disjoint
from producer.trace_protocol import ROTATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from producer.rotation.files import LayerRotations
    from producer.trace.files import Trace

__all__ = ["read_arms"]


def read_arms(
    paths: "Sequence[Path]", evaluation: "Trace"
) -> "dict[str, tuple[str, dict[int, LayerRotations]]]":
    """Return the arms of fitted files: by name, the SHA-256 of the file and the transforms by layer.

    Parameters
    ----------
    paths : sequence of Path
        An arm is called as its file, without the ending. Clip ratios by head, dialects and windows of a file are not
        looked at: in a comparison they are one for all arms.
    evaluation : Trace
        Of the model that the files were fitted to, of other texts.

    Raises
    ------
    SpecError
        If two files, or a file and a named rotation, have one name; if a fit has seen a text of the evaluation, or its
        codes are rounded with error feedback.
    FileFormatError, OSError, ExtraMissingError
        See `producer.fitted.read_fitted`.
    """
    arms: dict[str, tuple[str, dict[int, LayerRotations]]] = {}
    for path in paths:
        if path.stem in arms or path.stem in ROTATIONS:
            raise SpecError(
                f"{path}: an arm named {path.stem!r} is there already; give the file another name"
            )
        scheme, layers, calibration = read_fitted(path, evaluation.model)
        if scheme.rounding == "feedback":
            raise SpecError(
                f"{path}: error feedback is not allowed in a record: its quantizer rounds to the nearest level; "
                "`evaluate` measures it"
            )
        require_disjoint(calibration, evaluation.sequences)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        arms[path.stem] = digest, {index: layer.rotations for index, layer in layers.items()}
    return arms
