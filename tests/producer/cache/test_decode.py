"""Law 8: token-by-token decoding with the packed cache gives what the one-pass simulation gives."""

import numpy as np
import pytest

from producer.errors import SpecError
from producer.trace.files import ModelInfo
from tests.producer.cache import made_models as made

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the libraries, on their import
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def loaded_of(transformers, family):
    from producer.trace.model import LoadedModel  # noqa: PLC0415

    assert transformers is not None
    model = made.tiny_model(family)
    info = ModelInfo(family, type(model).__name__, "00" * 32, 3, 4, 2, 16, 64, 0.25)
    return LoadedModel(model, None, info)


@pytest.mark.parametrize("flush", [1, 16])
@pytest.mark.parametrize("kind", ["fitted", "quarot-native", "kivi"])
@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
def test_law_8_decoding_is_the_one_pass_simulation(transformers, family, kind, flush):
    from producer.experiment.trace.perplexity import ModelReference  # noqa: PLC0415

    if kind == "kivi" and flush != 16:
        return
    windows = {"group_size": 16, "sink": 16} if kind == "kivi" else {}
    layers = made.made_layers(kind, **windows)
    ids = made.tokens(1, 128)[0].numpy().astype(np.int32)
    reference = ModelReference(loaded_of(transformers, family), ids, 60)
    one, many = (reference.errors(layers, flush=flush, is_decoded=way) for way in (False, True))
    # The simulation rounds what it reads to float32: 1e-7, which seldom flips a code of a later layer.
    assert many.divergence > 1e-4
    assert abs(many.divergence - one.divergence) <= 1e-3 * one.divergence
    assert abs(many.perplexity - one.perplexity) <= 1e-3 * one.perplexity
    assert np.abs(many.residual - one.residual).max() <= 1e-3 * one.residual.max()


def test_decode_of_smollm2_is_the_simulation(smollm2):
    """Float64 apart, last bits decide codes; nearest codes of 80 decoded tokens agree to a part in a thousand."""
    import pydoc_data.topics  # noqa: PLC0415

    from producer.cache.unfitted import unfitted_layers  # noqa: PLC0415
    from producer.experiment.trace.perplexity import ModelReference  # noqa: PLC0415
    from producer.scheme.registry import SCHEMES  # noqa: PLC0415

    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))[:4000]
    ids = np.array(smollm2.tokenizer(text)["input_ids"][:480], dtype=np.int32)
    layers = unfitted_layers(SCHEMES["quarot"], 30, 64)
    reference = ModelReference(smollm2, ids, 400)
    one, many = (reference.errors(layers, flush=32, is_decoded=way) for way in (False, True))
    assert many.divergence > 1e-3
    assert abs(many.divergence - one.divergence) <= 5e-3 * one.divergence
    assert abs(many.perplexity - one.perplexity) <= 1e-3 * one.perplexity


def test_the_windows_of_the_simulation_are_those_of_the_cache(transformers):  # noqa: ARG001
    import torch  # noqa: PLC0415

    from producer.cache.rows import Windows  # noqa: PLC0415
    from producer.experiment.trace.perplexity import windowed_attention  # noqa: PLC0415

    rng = np.random.default_rng(4)
    for tokens, sink, recent, flush in ((600, 5, 20, 7), (300, 64, 40, 32), (50, 0, 1, 16)):
        q = torch.from_numpy(rng.standard_normal((1, 2, tokens, 8)))
        exact, other = (
            [torch.from_numpy(rng.standard_normal((1, 2, tokens, 8))) for _ in "kv"] for _ in range(2)
        )
        found = windowed_attention(q, exact, other, 0.3, sink, recent, flush)
        windows = Windows(sink=sink, recent=recent, flush=flush)
        for t in range(0, tokens, 13):
            places = torch.arange(t + 1)
            near = ((places < sink) | (places >= windows.end(t + 1)))[:, None]
            k, v = (
                torch.where(near, a[:, :, : t + 1], b[:, :, : t + 1])
                for a, b in zip(exact, other, strict=True)
            )
            weights = (q[:, :, t : t + 1] @ k.transpose(2, 3) * 0.3).softmax(-1)
            assert float((weights @ v - found[:, :, t : t + 1]).abs().max()) <= 1e-12


def test_decode_without_a_model_is_refused(tmp_path):
    from producer.cli import evaluate, main  # noqa: PLC0415

    assert evaluate._FLUSH == 32
    assert main(["evaluate", "--trace", str(tmp_path), "--decode"]) == 2
    assert issubclass(SpecError, ValueError)
