"""Dialects in torch, with the straight-through mask of OptR (equation 18).

Forward values are those of `producer.quantize` bit for bit (the sign of a 0 apart): the same float32 steps in the
same order. What is clipped has no gradient, all else the gradient 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.scheme.optr.torch_loader import load_torch

if TYPE_CHECKING:
    from producer.scheme.optr.torch_loader import Tensor

__all__ = ["TRAINABLE", "TorchQuantizer"]

#: Dialects with a form here.
TRAINABLE = ("oscar-prefill", "affine-midpoint")
_FLOOR, _TOP = 1e-8, 3.0


@dataclass(frozen=True, slots=True)
class TorchQuantizer:
    """One side of a cache, quantized and read again, for the heads of several layers.

    Parameters
    ----------
    dialect : {"oscar-prefill", "affine-midpoint"}
    group_size : int
        Divides the channels.
    clips : tuple of float
        Clip ratio of every head.

    Raises
    ------
    SpecError
        If the dialect has no form here, or a clip is outside what it takes.
    """

    dialect: str
    group_size: int
    clips: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.dialect not in TRAINABLE:
            raise SpecError(
                f"dialect {self.dialect!r} is not allowed: OptR learns through {' or '.join(TRAINABLE)}"
            )
        for clip in self.clips:
            if not (0 <= clip <= 1 and (clip > 0 or self.dialect == "oscar-prefill")):
                low = "0 (off)" if self.dialect == "oscar-prefill" else "above 0"
                raise SpecError(f"{self.dialect}: clip ratio {clip!r} is not allowed: {low} … 1")

    def apply(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values that a cache reads for z, and where z is not clipped.

        Parameters
        ----------
        z : Tensor, float, shape (heads, tokens, channels)
            Transformed keys or values.

        Returns
        -------
        values : Tensor of the same shape
        mask : bool Tensor of the same shape
            ∂values/∂z of the straight-through estimator.

        Notes
        -----
        `oscar-prefill`: 1{|z| ≤ τ}, τ the order statistic of the row (D2); with the clip off 1. `affine-midpoint`: 1
        from low to low + 3·scale (D9), by the distance to the middle of the group; with the clip ratio 1 it is 1.
        """
        steps = self._oscar if self.dialect == "oscar-prefill" else self._midpoint
        values, mask = steps(z)
        return values.reshape(z.shape), mask.reshape(z.shape)

    def _oscar(self, z: Tensor) -> tuple[Tensor, Tensor]:
        torch = load_torch()
        magnitude = z.abs()
        tau = self._thresholds(magnitude)
        groups = self._groups(torch.minimum(torch.maximum(z, -tau), tau))
        low = groups.amin(dim=-1, keepdim=True)
        values = _coded(groups, low, groups.amax(dim=-1, keepdim=True) - low)
        return values, magnitude <= tau

    def _midpoint(self, z: Tensor) -> tuple[Tensor, Tensor]:
        torch = load_torch()
        groups = self._groups(z)
        clips = torch.tensor(self.clips, dtype=z.dtype, device=z.device)[:, None, None, None]
        bottom = groups.amin(dim=-1, keepdim=True) * 0.5
        top = groups.amax(dim=-1, keepdim=True) * 0.5
        half = (top - bottom) * clips
        middle = bottom + top
        values = _coded(groups, middle - half, half + half)
        # Rounding must not clip the ends of a range that is not shrunk.
        reach = torch.where(clips == 1, torch.full_like(half, math.inf), half)
        return values, (groups - middle).abs() <= reach

    def _groups(self, z: Tensor) -> Tensor:
        """Return z with its channels in groups."""
        if z.shape[-1] % self.group_size:
            raise SpecError(
                f"group_size {self.group_size} is not allowed: a divisor of the {z.shape[-1]} channels"
            )
        return z.reshape(*z.shape[:-1], -1, self.group_size)

    def _thresholds(self, magnitude: Tensor) -> Tensor:
        """Return the clip threshold of every row, infinity where the clip is off, shape (heads, tokens, 1)."""
        torch = load_torch()
        channels = magnitude.shape[-1]
        places = [min(math.floor(clip * channels), channels - 1) if clip > 0 else None for clip in self.clips]
        if len(set(places)) == 1 and places[0] is not None:
            return _order_statistic(magnitude, places[0])
        tau = torch.full_like(magnitude[..., :1], math.inf)
        for place in set(places) - {None}:
            heads = [head for head, other in enumerate(places) if other == place]
            tau[heads] = _order_statistic(magnitude[heads], place)  # type: ignore[arg-type]  # None is taken out
        return tau


def _order_statistic(magnitude: Tensor, place: int) -> Tensor:
    """Return element `place` of every row in ascending order, shape (…, 1)."""
    torch = load_torch()
    if magnitude.device.type == "cpu":
        # NumPy's selection takes a tenth of the time of torch's.
        found = np.partition(magnitude.numpy(), place, axis=-1)[..., place : place + 1]
        return torch.from_numpy(np.ascontiguousarray(found))
    return magnitude.kthvalue(place + 1, dim=-1, keepdim=True).values


def _coded(groups: Tensor, low: Tensor, span: Tensor) -> Tensor:
    """Return (code - zero)·scale with half-up codes held to 0 … 3."""
    torch = load_torch()
    # A tensor on the device: division by a number is a multiplication by its reciprocal on a GPU.
    scale = span.clamp(min=_FLOOR) / torch.full((1,), _TOP, dtype=span.dtype, device=span.device)
    zero = -low / scale
    codes = (groups / scale).add_(zero).add_(0.5).trunc_().clamp_(0.0, _TOP)
    return codes.sub_(zero).mul_(scale)
