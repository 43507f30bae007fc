"""The clip search of a candidate, and a grid that extends until its optimum is inside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from producer.errors import SearchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from producer.experiment.slice.spec import ClipGrid

__all__ = ["ClipCurve", "ClipSearch", "next_ratios"]

# Ratios that one extension adds: each pass over the cache costs, a ratio within a pass costs less.
_EXTENSION = 4


def next_ratios(last: float, grid: ClipGrid, count: int = _EXTENSION) -> list[float]:
    """Return the ratios that extend a grid below `last`: a step lower each, or half where that is less.

    None is below the grid's floor, so the list may be shorter than `count`, or empty.
    """
    ratios: list[float] = []
    ratio = last
    while len(ratios) < count:
        # Rounded, so that a record shows 0.55 and not 0.5499999999999999.
        ratio = round(max(ratio - grid.step, ratio / 2), 6)
        if ratio < grid.floor:
            break
        ratios.append(ratio)
    return ratios


@dataclass(slots=True)
class ClipCurve:
    """The calibration objective of one candidate over clip ratios.

    Attributes
    ----------
    ratios : list of float
        Falling.
    objectives : list of float
        Mean NMSE over the calibration queries, ratio by ratio.
    """

    ratios: list[float] = field(default_factory=list)
    objectives: list[float] = field(default_factory=list)

    @property
    def best_index(self) -> int:
        """Place of the least objective, the first of equals."""
        return self.objectives.index(min(self.objectives))

    @property
    def best_ratio(self) -> float:
        """Ratio of the least objective."""
        return self.ratios[self.best_index]

    @property
    def best_objective(self) -> float:
        """Least objective."""
        return min(self.objectives)

    @property
    def at_lower_end(self) -> bool:
        """Whether the least objective is that of the last ratio."""
        return self.best_index == len(self.ratios) - 1


class ClipSearch:
    """Searches one candidate after another over a common grid.

    Parameters
    ----------
    grid : ClipGrid
        Where the search starts; the common grid grows while a candidate's optimum is its last ratio.

    Attributes
    ----------
    ratios : list of float
        The common grid so far.
    """

    def __init__(self, grid: ClipGrid) -> None:
        self._grid = grid
        self.ratios = list(grid.ratios)

    @property
    def extended_by(self) -> list[float]:
        """The ratios that were added to the grid."""
        return self.ratios[len(self._grid.ratios) :]

    def adopt(self, curve: ClipCurve) -> None:
        """Take a candidate's longer grid as the common one; it may come from another process."""
        if len(curve.ratios) > len(self.ratios):
            self.ratios = list(curve.ratios)

    def complete(self, curve: ClipCurve, objectives: Callable[[Sequence[float]], list[float]]) -> None:
        """Search what a candidate's curve lacks, and extend the common grid if its optimum is the last ratio.

        Parameters
        ----------
        curve : ClipCurve
            Changed in place.
        objectives : callable
            Ratios → the candidate's calibration objectives.

        Raises
        ------
        SearchError
            If the optimum is still the last ratio when the grid has reached its floor.
        """
        missing = self.ratios[len(curve.ratios) :]
        while missing:
            curve.objectives += objectives(missing)
            curve.ratios += missing
            missing = []
            if self._grid.extend and curve.at_lower_end:
                missing = next_ratios(curve.ratios[-1], self._grid)
                if not missing:
                    raise SearchError(
                        f"the clip search found no optimum above {curve.ratios[-1]}: the calibration objective "
                        f"still falls there, to {curve.best_objective:.6g}; an output of zeros has 1. More "
                        "calibration queries, or another seed, may help"
                    )
                self.ratios += missing
