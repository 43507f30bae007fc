"""One stage of OptR: Adam on the corrections of a chunk's heads, held-out losses, and the choice by head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from producer.scheme.optr.parameters import Adam, transforms
from producer.scheme.optr.torch_loader import load_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from producer.scheme.optr.objective import Gradients
    from producer.scheme.optr.options import OptrOptions
    from producer.scheme.optr.torch_loader import Tensor

__all__ = ["Objectives", "StageState", "run_stage"]


class _Objective(Protocol):
    """A loss by head."""

    def losses(
        self, matrix: Tensor, inverse: Tensor, *, is_learning: bool
    ) -> tuple[Tensor, Gradients | None]:
        """Return the loss of every head, and its gradients when learning."""
        ...


@dataclass(frozen=True, slots=True)
class Objectives:
    """The loss that is learned from, and the one that chooses; None where nothing chooses."""

    training: _Objective
    held_out: _Objective | None


@dataclass(slots=True, kw_only=True)
class StageState:
    """Where a stage is, all of it, so that it can be stored and continued.

    Attributes
    ----------
    start, start_inverse : Tensor, float64, shape (H, d, d)
    adam : Adam
        Over the corrections, float64, shape (H, d, d); `adam.taken` is the step.
    matrix, inverse : Tensor, float32, shape (H, d, d)
        Chosen so far.
    chosen : Tensor, int64, shape (H,)
        Its step.
    training : Tensor, float64, shape (H, steps + 1)
        Loss before every step, and after the last.
    held_out : Tensor, float64, shape (H, checkpoints)
        NaN where it is not known yet.
    """

    start: Tensor
    start_inverse: Tensor
    adam: Adam
    matrix: Tensor
    inverse: Tensor
    chosen: Tensor
    training: Tensor
    held_out: Tensor

    @classmethod
    def at_start(
        cls, matrices: NDArray[Any], inverses: NDArray[Any], first: NDArray[Any], options: OptrOptions
    ) -> StageState:
        """Return the state before the first step, of the start's matrices, float32, and the first corrections."""
        torch = load_torch()
        matrix, inverse = (torch.from_numpy(x.copy()).to(options.device) for x in (matrices, inverses))
        wide = {"dtype": torch.float64, "device": options.device}
        heads = len(matrix)
        return cls(
            start=matrix.to(torch.float64),
            start_inverse=inverse.to(torch.float64),
            adam=Adam(
                torch.from_numpy(first).to(**wide), *(torch.zeros(matrix.shape, **wide) for _ in range(2))
            ),
            matrix=matrix,
            inverse=inverse,
            chosen=torch.zeros(heads, dtype=torch.int64, device=options.device),
            training=torch.full((heads, options.steps + 1), torch.nan, **wide),
            held_out=torch.full((heads, len(options.checkpoints)), torch.nan, **wide),
        )

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return what changes as arrays, by name."""
        torch = load_torch()
        tensors = {
            "correction": self.adam.values,
            "mean": self.adam.mean,
            "square": self.adam.square,
            "taken": torch.tensor([self.adam.taken]),
            **{name: getattr(self, name) for name in _STORED},
        }
        return {f"{prefix}.{name}": tensor.detach().cpu().numpy() for name, tensor in tensors.items()}

    def restore(self, prefix: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `arrays` gave."""
        torch = load_torch()
        device = self.start.device

        def tensor(name: str) -> Tensor:
            return torch.from_numpy(arrays[f"{prefix}.{name}"].copy()).to(device)

        self.adam = Adam(
            tensor("correction"), tensor("mean"), tensor("square"), int(arrays[f"{prefix}.taken"][0])
        )
        for name in _STORED:
            setattr(self, name, tensor(name))


_STORED = ("matrix", "inverse", "chosen", "training", "held_out")


def run_stage(
    state: StageState,
    objectives: Objectives,
    options: OptrOptions,
    save: Callable[[], None],
    report: Callable[[int, Tensor, Tensor], None],
) -> None:
    """Run a stage from where its state is to its last step.

    Parameters
    ----------
    state : StageState
        Is changed.
    objectives : Objectives
    options : OptrOptions
    save : callable
        Stores the state; called at every checkpoint, before the step that follows it.
    report : callable
        Called with the step and both losses by head at every step; the held-out one is that of the last checkpoint.
    """
    checkpoints = options.checkpoints
    held_out = state.held_out[:, 0]
    while True:
        step = state.adam.taken
        correction = state.adam.values.clone().requires_grad_()
        matrix, inverse = transforms(state.start, state.start_inverse, correction, options.transform)
        fixed, fixed_inverse = matrix.detach().contiguous(), inverse.detach().contiguous()
        if step in checkpoints:
            column = checkpoints.index(step)
            if objectives.held_out is not None and bool(state.held_out[:, column].isnan().all()):
                state.held_out[:, column] = objectives.held_out.losses(
                    fixed, fixed_inverse, is_learning=False
                )[0]
            _choose(state, options, column, (fixed, fixed_inverse))
            save()
            held_out = state.held_out[:, column]
        is_last = step == options.steps
        loss, gradients = objectives.training.losses(fixed, fixed_inverse, is_learning=not is_last)
        state.training[:, step] = loss
        report(step, loss, held_out)
        if gradients is None:
            return
        load_torch().autograd.backward((matrix, inverse), (gradients.matrix, gradients.inverse))
        state.adam.step(correction.grad, options.learning_rate)


def _choose(state: StageState, options: OptrOptions, column: int, found: tuple[Tensor, Tensor]) -> None:
    """Take a checkpoint's matrices for the heads whose held-out loss is the least so far, or for all."""
    step = options.checkpoints[column]
    if options.selection == "last":
        better = state.chosen >= 0
    elif column == 0:
        better = state.chosen == step
    else:
        earlier = state.held_out[:, :column].nan_to_num(nan=float("inf")).amin(dim=1)
        better = state.held_out[:, column] < earlier
    state.matrix[better], state.inverse[better] = found[0][better], found[1][better]
    state.chosen[better] = step
