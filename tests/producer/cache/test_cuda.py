"""The packed cache on a GPU: what the CPU gives. Times are `tests.bench.cache`'s."""

import importlib.util

import pytest

from tests.producer.cache import made_models as made

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: `make slow` installs it"
    ),
]


@pytest.mark.parametrize("kind", ["fitted", "kivi", "quarot-native"])
def test_a_gpu_decodes_what_the_cpu_decodes(kind):
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device here")
    from producer.cache import PackedCache  # noqa: PLC0415

    windows = {"group_size": 16, "sink": 16} if kind == "kivi" else {}
    found = []
    for device in ("cpu", "cuda"):
        model = made.tiny_model("Llama").to(device)
        cache = PackedCache.for_model(model, made.made_layers(kind, **windows), flush=16)
        found.append(made.logits_of(model, made.tokens(1, 100).to(device), cache, [70, 1, 9]).cpu())
    assert made.apart(found[1], found[0]) <= 1e-9
