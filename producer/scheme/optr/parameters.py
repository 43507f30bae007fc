"""The learned corrections: M₀ times the exponential of the parameters that Adam updates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from producer.scheme.optr.torch_loader import load_torch

if TYPE_CHECKING:
    from producer.scheme.optr.torch_loader import Tensor

__all__ = ["Adam", "exponential", "transforms"]

_DEGREE, _REACH = 12, 0.5
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


def exponential(s: Tensor) -> Tensor:
    """Return exp(S) of matrices of shape (…, d, d), float64; torch can differentiate it.

    Notes
    -----
    Scaling and squaring: exp(S) = T(S/2ⁿ)^(2ⁿ), T the Taylor polynomial of degree 12 and n, of each matrix its own,
    such that S/2ⁿ has no 1-norm above ½, where T is exact to 2·10⁻¹⁴. exp(0) is exactly I. Batches of small matrices
    take a hundredth of the time of ``torch.matrix_exp``.
    """
    torch = load_torch()
    norm = s.detach().abs().sum(dim=-2).amax(dim=-1)[..., None, None]
    halvings = (norm / _REACH).log2().ceil().clamp(min=0).nan_to_num(nan=0.0, posinf=0.0)
    x = s / 2**halvings
    identity = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device).expand_as(s)
    powers = [identity, x, x @ x]
    powers += [powers[2] @ x, powers[2] @ powers[2]]
    result = identity / math.factorial(_DEGREE)
    # By Horner's rule in x⁴: Σ over blocks of four coefficients.
    for first in range(_DEGREE - 4, -1, -4):
        block = sum(
            (powers[i] / math.factorial(first + i) for i in range(1, 4)), identity / math.factorial(first)
        )
        result = block + powers[4] @ result
    for done in range(int(halvings.amax())):
        result = torch.where(halvings > done, result @ result, result)
    return result


def transforms(
    start: Tensor, start_inverse: Tensor, correction: Tensor, kind: Literal["orthogonal", "general"]
) -> tuple[Tensor, Tensor]:
    """Return the corrected matrices M and their inverses, float32; torch can differentiate them.

    Parameters
    ----------
    start, start_inverse : Tensor, float64, shape (heads, d, d)
        M₀ and M₀⁻¹.
    correction : Tensor, float64, shape (heads, d, d)
        A, or B.
    kind : {"orthogonal", "general"}
        M₀·exp(A - Aᵀ), with the inverse Mᵀ (equation 11); or M₀·exp(B), with exp(-B)·M₀⁻¹.
    """
    torch = load_torch()
    if kind == "orthogonal":
        rotated = (start @ exponential(correction - correction.mT)).to(torch.float32)
        return rotated, rotated.mT
    both = exponential(torch.stack([correction, -correction]))
    return (start @ both[0]).to(torch.float32), (both[1] @ start_inverse).to(torch.float32)


@dataclass(slots=True)
class Adam:
    """Adam (Kingma and Ba, algorithm 1) over one tensor, its state in the open so that it can be stored.

    Attributes
    ----------
    values, mean, square : Tensor
        What is moved, and the moving means of its gradient and of the gradient's square.
    taken : int
        Steps so far.
    """

    values: Tensor
    mean: Tensor
    square: Tensor
    taken: int = 0

    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Move the values by one step."""
        self.taken += 1
        self.mean.lerp_(gradient, 1 - _BETA_1)
        self.square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1 - _BETA_2)
        spread = (self.square / (1 - _BETA_2**self.taken)).sqrt_().add_(_EPSILON)
        self.values.addcdiv_(self.mean, spread, value=-learning_rate / (1 - _BETA_1**self.taken))
