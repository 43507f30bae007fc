"""Options of OptR, and the paper's recipe by its name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from producer.errors import SpecError
from producer.trace.layer import LAST_QUERIES

__all__ = ["PRESETS", "Objective", "OptrOptions"]

Objective: TypeAlias = Literal["output", "readout", "cache"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptrOptions:
    """How corrections are learned; the defaults are the paper's recipe.

    Every step sees all sequences, so that nothing is drawn by chance but, where a seed asks for it, the first
    corrections.

    Parameters
    ----------
    learning_rate : float
        Of Adam, whose other constants are β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸.
    steps : int
        Of the key stage, and again of the value stage.
    key_weight : float
        λ_K, the weight of the error beside the divergence in the key loss (equation 14).
    objective : {"output", "readout", "cache"}
        What the error term measures: the attention output after W_O (the paper's), before it, or the cache itself
        (table 4).
    transform : {"orthogonal", "general"}
        R₀·exp(A - Aᵀ), the paper's, or M₀·exp(B) with any B, which keeps no rotation and has the inverse
        exp(-B)·M₀⁻¹.
    selection : {"held-out", "last"}
        Whether every KV head takes its checkpoint of the least held-out loss, the start among them, or the last.
    checkpoint_every : int
        Steps from one held-out loss to the next; the last step has one too.
    queries : int
        Last positions of a sequence over which losses are taken.
    least_quantized : int
        Sequences with fewer quantized tokens are left out.
    seed : int
        0: corrections start at 0, as published. Another one draws their entries with standard deviation 10⁻³, which
        shows how much of a result depends on the path of training.
    device : str
        Of torch: cpu, cuda or cuda:N.
    chunk_bytes : int
        Layers are taken together while their arrays fit in about this size; at least one layer at a time.

    Raises
    ------
    SpecError
        If a value is not allowed.
    """

    learning_rate: float = 0.02
    steps: int = 80
    key_weight: float = 1.0
    objective: Objective = "output"
    transform: Literal["orthogonal", "general"] = "orthogonal"
    selection: Literal["held-out", "last"] = "held-out"
    checkpoint_every: int = 20
    queries: int = LAST_QUERIES
    least_quantized: int = 8
    seed: int = 0
    device: str = "cpu"
    chunk_bytes: int = 1 << 27

    def __post_init__(self) -> None:
        for name in ("learning_rate", "key_weight"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SpecError(f"{name} {value!r} is not allowed: 0 or above")
        for name, least in (
            ("steps", 0),
            ("checkpoint_every", 1),
            ("queries", 1),
            ("least_quantized", 1),
            ("seed", 0),
            ("chunk_bytes", 1),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise SpecError(f"{name} {value!r} is not allowed: an integer, {least} or above")
        for name, allowed in (
            ("objective", ("output", "readout", "cache")),
            ("transform", ("orthogonal", "general")),
            ("selection", ("held-out", "last")),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise SpecError(f"{name} {value!r} is not allowed: one of {', '.join(allowed)}")

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Steps at which the held-out loss is taken: 0, every `checkpoint_every`-th, and the last."""
        return tuple(dict.fromkeys([*range(0, self.steps, self.checkpoint_every), self.steps]))


#: Recipes by name. `optr-paper` is meant with the dialect `oscar-prefill`, clips 0.96 and 0.92 and centred keys, as
#: in the schemes `quarot-centred` and `oscar-centred`.
PRESETS: dict[str, OptrOptions] = {"optr-paper": OptrOptions()}
