"""The exponential and Adam, beside torch's own and by hand."""

import math

import numpy as np
import pytest

from producer.scheme.optr.parameters import Adam, exponential, transforms
from tests.producer.scheme.optr import made_optr

pytestmark = pytest.mark.slow


def matrices(torch, norm, *, is_skew, heads=5, d=16):
    generator = torch.Generator().manual_seed(heads + d)
    a = torch.randn(heads, d, d, dtype=torch.float64, generator=generator)
    if is_skew:
        a = a - a.mT
    return a * norm / a.abs().sum(dim=-2).amax()


@pytest.mark.parametrize("norm", [1e-9, 0.3, 0.5, 0.51, 3.0, 40.0])
@pytest.mark.parametrize("is_skew", [True, False])
def test_the_exponential_is_torchs(torch, norm, is_skew):
    s = matrices(torch, norm, is_skew=is_skew)
    found, other = exponential(s), torch.matrix_exp(s)
    assert float((found - other).abs().max()) <= 1e-12 * float(other.abs().max())
    if is_skew:
        error = found @ found.mT - torch.eye(16, dtype=torch.float64)
        assert float(error.abs().max()) <= 1e-12


def test_the_exponential_of_nothing_is_exactly_the_identity(torch):
    assert torch.equal(
        exponential(torch.zeros(2, 3, 3, dtype=torch.float64)), torch.eye(3).double().expand(2, 3, 3)
    )


def test_no_exponential_hangs_on_the_others(torch):
    """Matrices of very different norms, together and alone: the same to the last bit."""
    s = matrices(torch, 1.0, is_skew=True) * torch.tensor([1e-6, 0.4, 3.0, 40.0, 0.0])[:, None, None]
    together = exponential(s)
    for place in range(5):
        assert torch.equal(together[place], exponential(s[place : place + 1])[0])


def test_a_generator_turns_by_twice_its_entry(torch):
    """S = A - Aᵀ: an A with one entry a, and one with a and -a across the diagonal, turn by a and by 2a."""
    one = torch.tensor([[[0.0, 0.3], [0.0, 0.0]], [[0.0, 0.3], [-0.3, 0.0]]], dtype=torch.float64)
    identity = torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    rotation, inverse = transforms(identity, identity, one, "orthogonal")
    for found, angle in zip(rotation, (0.3, 0.6), strict=True):
        turn = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        assert np.allclose(found.numpy(), turn, atol=1e-7)
    assert torch.equal(inverse, rotation.mT)


def test_gradients_of_the_exponential_are_torchs(torch):
    s = matrices(torch, 2.0, is_skew=False)
    weights = matrices(torch, 1.0, is_skew=True)
    found = []
    for function in (exponential, torch.matrix_exp):
        x = s.clone().requires_grad_()
        (function(x) * weights).sum().backward()
        found.append(x.grad)
    assert float((found[0] - found[1]).abs().max()) <= 1e-12


def test_a_general_correction_keeps_its_inverse(torch):
    base = made_optr.invertible(3, 2, 16)
    start, inverse = (torch.from_numpy(np.array(x)).double() for x in (base.matrices, base.inverses))
    found, undone = transforms(start, inverse, matrices(torch, 1.0, is_skew=False, heads=2), "general")
    assert float((found @ undone - torch.eye(16)).abs().max()) <= 1e-5
    assert float((found - start).abs().max()) > 0.1


def test_corrections_of_rotations_stay_rotations_and_skew(torch):
    """Gradients of functions of A - Aᵀ are skew, and Adam treats both signs alike."""
    start = torch.from_numpy(made_optr.orthogonal(1, 3, 8)).double()
    aim = start @ torch.matrix_exp(matrices(torch, 2.0, is_skew=True, heads=3, d=8))
    adam = Adam(*(torch.zeros(3, 8, 8, dtype=torch.float64) for _ in range(3)))
    first = None
    for _ in range(60):
        a = adam.values.clone().requires_grad_()
        rotation, _ = transforms(start, start.mT, a, "orthogonal")
        loss = ((rotation - aim) ** 2).sum()
        loss.backward()
        first = float(loss.detach()) if first is None else first
        adam.step(a.grad, 0.05)
        error = rotation.detach() @ rotation.detach().mT - torch.eye(8)
        assert float(error.abs().max()) <= 1e-5
    assert float((adam.values + adam.values.mT).abs().max()) <= 1e-6
    assert float(loss.detach()) < 0.1 * first


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch, on its import
def test_adam_is_torchs(torch):
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=0.02)
    ours = Adam(start.clone(), torch.zeros_like(start), torch.zeros_like(start))
    for step in range(30):
        gradient = torch.randn(4, 3, dtype=torch.float64, generator=generator) * 10.0 ** (step % 7 - 3)
        theirs.grad = gradient.clone()
        optimizer.step()
        ours.step(gradient, 0.02)
        assert float((ours.values - theirs.detach()).abs().max()) <= 1e-12
