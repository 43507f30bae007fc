"""The losses beside the evaluation's errors, and their gradients beside autograd and finite differences."""

import dataclasses

import numpy as np
import pytest

from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.optr.inputs import by_head, prepare_sides, read_inputs, side_quantizer
from producer.scheme.optr.objective import KeyObjective, ValueObjective
from producer.scheme.optr.options import OptrOptions
from producer.scheme.optr.parameters import exponential
from producer.scheme.optr.problem import prepare_metric, prepare_sequence
from tests.producer.cache_errors import head_errors
from tests.producer.scheme.optr import made_optr

pytestmark = pytest.mark.slow

Q = made_optr.QUERIES
LENGTHS = (40, 25, 61)


@pytest.fixture
def training(torch, tmp_path):  # noqa: ARG001 - the library first
    return made_optr.trace(tmp_path / "training", 1, LENGTHS)


def parts(training, start, scheme, objective="output", key_weight=0.7):
    """Sequences, both objectives at the start's own transforms, and these transforms."""
    import torch  # noqa: PLC0415 - an extra

    options = OptrOptions(queries=Q, selection="last", transform="general")
    inputs, _ = read_inputs(start, scheme, (training, None), options)
    sequences, _ = prepare_sides(start, inputs, options)
    metric = prepare_metric((training.layer(i, 0) for i in start), objective, "cpu")
    sides = {}
    for side in ("key", "value"):
        arrays = by_head([getattr(layer, side) for layer in start.values()], 2)
        sides[side] = tuple(torch.from_numpy(np.array(x)) for x in arrays)
    is_cache = objective == "cache"
    key = KeyObjective(sequences, side_quantizer("key", start, inputs), metric, key_weight, is_cache)
    attention = key.attention(*sides["key"])
    quantizer = side_quantizer("value", start, inputs)
    value = ValueObjective(sequences, attention, quantizer, metric, is_cache)
    return sequences, {"key": key, "value": value}, sides


SCHEMES = {
    "oscar": made_optr.SCHEME,
    "midpoint-groups": dataclasses.replace(
        made_optr.SCHEME,
        key_dialect="affine-midpoint",
        value_dialect="affine-midpoint",
        key_clip=0.7,
        value_clip=0.8,
        group_size=8,
    ),
    # Fewer exact tokens than queries: some quantized ones are in the future of some queries.
    "short-window": dataclasses.replace(made_optr.SCHEME, sink=0, recent=2),
}


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
@pytest.mark.parametrize("is_general", [False, True])
@pytest.mark.parametrize(
    "changes", [{}, {"key_mean": None}, {"key_clips": (0.8, 0.9), "value_clips": (0.5, 1.0)}]
)
def test_losses_are_those_of_the_evaluation(training, scheme, is_general, changes):
    """Equations 14 and 16 by `output_error`, in float64 and with W_O in full: L_K and L_V of every head."""
    start = made_optr.start(is_general=is_general, **changes)
    _, objectives, sides = parts(training, start, scheme)
    expected = {"key": [], "value": []}
    for layer_idx, rotations in start.items():
        fitted = FittedLayer(scheme, rotations)
        layers = [training.layer(layer_idx, place) for place in range(len(LENGTHS))]
        errors = [head_errors(x, *fitted.store(x.k, x.v).restored(), Q) for x in layers]
        rows, hidden = sum(error.queries for error in errors), training.model.hidden_size
        expected["key"].append(sum(e.divergence + 0.7 * e.key_part / hidden for e in errors) / rows)
        expected["value"].append(sum(e.value_part / hidden for e in errors) / rows)
    for side, objective in objectives.items():
        found, gradients = objective.losses(*sides[side], is_learning=False)
        assert gradients is None
        assert np.allclose(found.numpy(), np.concatenate(expected[side]), rtol=2e-4, atol=1e-6)


@dataclasses.dataclass
class Plain:
    """Losses of one layer written down as in the paper, float64, for autograd."""

    torch: object
    layer: object
    mean: object
    side: str
    sink: int
    objective: str

    def __post_init__(self):
        def wide(array):
            return self.torch.from_numpy(array.copy()).double()

        layer, first = self.layer, self.layer.seq_len - Q
        self.k = wide(layer.k) - wide(self.mean)[:, None]
        self.v = wide(layer.v)
        self.q = wide(layer.q[:, first:]).reshape(layer.num_kv_heads, layer.group, Q, -1)
        self.w = wide(layer.w_o).reshape(layer.num_kv_heads, layer.group, *layer.w_o.shape[1:])
        positions = self.torch.arange(layer.seq_len)
        self.future = positions[None] > positions[first:, None]

    def log_weights(self, keys):
        scores = self.q @ keys[:, None].mT * self.layer.scaling
        return scores.masked_fill(self.future, -1e30).log_softmax(dim=-1)

    def terms(self, x, inverse, attention):
        """Divergence and error of every head, for quantized rows x."""
        middle = slice(self.sink, self.sink + x.shape[1])
        exact = self.k if self.side == "key" else self.v
        effective = exact.clone()
        effective[:, middle] = x @ inverse
        log_p, divergence = self.log_weights(self.k), 0 * x.sum(dim=(1, 2))
        if self.side == "key":
            log_q = self.log_weights(effective)
            divergence = (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean(dim=(1, 2))
            error = (log_q.exp() - log_p.exp()) @ self.v[:, None]
        else:
            weights = self.torch.zeros_like(log_p)
            weights[..., middle] = attention.double().reshape(*log_p.shape[:3], -1)
            error = weights @ (effective - self.v)[:, None]
        if self.objective == "cache":
            return divergence, ((effective - exact) ** 2).mean(dim=(1, 2))
        if self.objective == "output":
            error = error @ self.w
        return divergence, (error**2).mean(dim=(1, 2, 3))


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
@pytest.mark.parametrize("objective", ["output", "readout", "cache"])
@pytest.mark.parametrize("side", ["key", "value"])
def test_gradients_are_autograds(torch, training, side, objective, scheme):
    """The straight-through estimator as autograd has it: the mask, times what follows the quantizer."""
    start = {0: made_optr.start(is_general=True)[0]}
    sequences, objectives, sides = parts(training, start, scheme, objective)
    found, gradients = objectives[side].losses(*sides[side], is_learning=True)
    matrix, inverse = (x.double().requires_grad_() for x in sides[side])
    total = 0
    for place, sequence in enumerate(sequences):
        rows = (sequence.k if side == "key" else sequence.v).double()
        values, mask = objectives[side].quantizer.apply((rows @ matrix).float().detach())
        z = (rows @ matrix) * mask
        plain = Plain(torch, training.layer(0, place), start[0].key_mean, side, scheme.sink, objective)
        attention = objectives["value"].attention[place]
        divergence, error = plain.terms(z + (values.double() - z).detach(), inverse, attention)
        # Every sequence has as many queries; the cache objective is a mean over the tokens of all.
        share = LENGTHS[place] / sum(LENGTHS) if objective == "cache" else 1 / len(LENGTHS)
        total = total + divergence / len(LENGTHS) + (0.7 if side == "key" else 1.0) * share * error
    total.sum().backward()
    assert np.allclose(found.numpy(), total.detach().numpy(), rtol=2e-4)
    for ours, theirs in ((gradients.matrix, matrix.grad), (gradients.inverse, inverse.grad)):
        scale = float(theirs.abs().max())
        assert scale > 1e-6
        assert float((ours - theirs).abs().max()) <= 1e-3 * scale


class NoRounding:
    """A quantizer without codes: a fixed error is added, so that a loss has a true derivative."""

    def __init__(self, error):
        self.error = error

    def apply(self, z):
        return z + self.error, z == z  # noqa: PLR0124 - all true


@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize("objective", ["output", "readout", "cache"])
def test_the_generators_gradient_is_a_finite_difference(torch, training, side, objective):
    """d L(R₀ exp(A - Aᵀ))/dA in float64, with a fixed error in the place of rounding, at an A that is not 0."""
    start = {0: made_optr.start()[0]}
    sequences, objectives, sides = parts(training, start, made_optr.SCHEME, objective)
    generator = torch.Generator().manual_seed(5)
    base = sides[side][0].double()

    def wide(sequence):
        changes = {
            name: value.double()
            for name, value in ((x.name, getattr(sequence, x.name)) for x in dataclasses.fields(sequence))
            if torch.is_tensor(value)
        }
        return dataclasses.replace(sequence, **changes)

    sequence = wide(sequences[0])
    error = 0.2 * torch.randn(sequence.k.shape, dtype=torch.float64, generator=generator)
    changes = {
        "sequences": [sequence],
        "quantizer": NoRounding(error),
        "metric": objectives[side].metric.double(),
    }
    if side == "value":
        changes["attention"] = [objectives[side].attention[0].double()]
    objective_wide = dataclasses.replace(objectives[side], **changes)

    def loss(a, *, is_learning):
        rotation = base @ exponential(a - a.mT)
        fixed = rotation.detach()
        found, gradients = objective_wide.losses(fixed, fixed.mT.contiguous(), is_learning=is_learning)
        if is_learning:
            torch.autograd.backward((rotation, rotation.mT), (gradients.matrix, gradients.inverse))
        return found

    a = 0.1 * torch.randn(base.shape, dtype=torch.float64, generator=generator)
    learned = a.clone().requires_grad_()
    loss(learned, is_learning=True)
    for _ in range(4):
        direction = torch.randn(base.shape, dtype=torch.float64, generator=generator)
        step = 1e-5 * direction
        difference = (loss(a + step, is_learning=False) - loss(a - step, is_learning=False)) / 2e-5
        slope = (learned.grad * direction).sum(dim=(1, 2))
        assert np.allclose(difference.numpy(), slope.numpy(), rtol=1e-5, atol=1e-9)


def test_the_score_of_a_raised_token_does_not_overflow(torch, training):
    """A key that is quantized to a far larger score: exp(400) is no float32."""
    start = {0: made_optr.start()[0]}
    sequences, objectives, _ = parts(training, start, made_optr.SCHEME)
    sequence = dataclasses.replace(sequences[0], q=sequences[0].q * 0 + 1)
    raised = torch.zeros_like(sequence.k)
    raised[:, 3] = 25.0
    identity = torch.eye(16).expand(2, 16, 16).contiguous()
    key = dataclasses.replace(objectives["key"], sequences=[sequence], quantizer=NoRounding(raised))
    found, gradients = key.losses(identity, identity, is_learning=True)
    assert (found > 100).all()
    assert found.isfinite().all()
    assert gradients.matrix.isfinite().all()
    assert abs(float(key.attention(identity, identity)[0][0, 0].sum()) - 1) <= 1e-5


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_centred_keys_have_the_same_weights(training, scheme):
    """Section 4.1: the softmax does not see the mean; scores do."""
    layer = training.layer(0, 0)
    mean = layer.k.mean(axis=1)
    plain, centred = (prepare_sequence([layer], [m], scheme, Q, "cpu") for m in (None, mean))
    for name in ("weights", "window_weight", "window_readout", "readout"):
        assert np.allclose(getattr(plain, name).numpy(), getattr(centred, name).numpy(), atol=1e-5)
    assert float((plain.log_total - centred.log_total).abs().max()) > 0.1
    # Weights of the windows and of the quantized tokens are all there are.
    assert np.allclose(plain.weights.sum(dim=-1).numpy() + plain.window_weight.numpy(), 1, atol=1e-6)


@pytest.mark.parametrize("clip", [0.0, 0.92])
def test_without_a_clip_the_estimator_does_not_see_the_size_of_an_error(torch, training, clip):
    """With all masks 1, d(Q(kR)Rᵀ) = (Q(kR) - kR) dRᵀ: a fixed error that is turned, whose square is constant.

    So the cache objective has no gradient at all, though its loss depends on R; what is clipped gives it one.
    """
    start = {0: made_optr.start(value_clips=(clip, clip))[0]}
    _, objectives, sides = parts(training, start, made_optr.SCHEME, "cache")
    base = sides["value"][0].double()
    a = torch.zeros_like(base).requires_grad_()
    rotation = base @ exponential(a - a.mT)
    _, gradients = objectives["value"].losses(*sides["value"], is_learning=True)
    torch.autograd.backward((rotation, rotation.mT), (gradients.matrix, gradients.inverse))
    size = float(a.grad.abs().max()) / float(gradients.matrix.abs().max())
    assert size > 0.01 if clip else size <= 1e-5
