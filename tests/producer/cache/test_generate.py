"""`kvint2eval-producer generate` on the real model."""

import numpy as np
import pytest

from producer.cli import main
from producer.errors import FileFormatError
from tests.producer.cache import made_models as made

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the libraries, on their import
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def fitted(smollm2, tmp_path_factory):
    """A file for SmolLM2 with windows of 12 tokens, fitted to nothing."""
    import torch  # noqa: PLC0415

    from producer.scheme.fitted_file import Fitted, write_fitted  # noqa: PLC0415
    from producer.scheme.fitted_layer import FittedLayer  # noqa: PLC0415
    from producer.scheme.registry import Scheme  # noqa: PLC0415
    from producer.trace.texts import SequenceInfo  # noqa: PLC0415
    from producer.transform.dense import build_quarot  # noqa: PLC0415
    from producer.transform.transform_file import LayerTransforms  # noqa: PLC0415

    torch.set_num_threads(1)
    scheme = Scheme(name="quarot", key_rotation="quarot", value_rotation="quarot", sink=4, recent=8)
    layer = FittedLayer(scheme, LayerTransforms(build_quarot(64), build_quarot(64)))
    info = SequenceInfo(
        name="none",
        text_sha256="00" * 32,
        first_token=0,
        tokens=1,
        token_ids_sha256="00" * 32,
        passages=("00" * 8,),
    )
    path = tmp_path_factory.mktemp("fitted") / "quarot.safetensors"
    write_fitted(path, Fitted(scheme, smollm2.info, dict.fromkeys(range(30), layer), (info,)))
    return path


def test_generate_prints_text_speed_and_bytes(smollm2_path, fitted, tmp_path, capsys):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("The capital of France is Paris. " * 12)
    command = ["generate", "--model", str(smollm2_path), "--fitted", str(fitted), "--max-new-tokens", "6"]
    command += ["--prompt-file", str(prompt), "--metadata", "float16", "--windows", "float16"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "6 tokens in" in out
    # 90 tokens in all: 4 of sink and 22 to the next multiple of 32 below 90 - 8 in 16 bits, 60 at 2.5 bits.
    tokens = int(out.rpartition("cache of ")[2].split()[0])
    end = (tokens - 8) // 32 * 32
    share = ((end - 4) * 2.5 / 16 + tokens - end + 4) / tokens
    assert f"{share:.3f} of 16-bit ones" in out


def test_generate_refuses_before_the_first_second_of_work(smollm2_path, fitted, tmp_path, capsys):
    prompt = tmp_path / "prompt.txt"
    common = ["--model", str(smollm2_path), "--fitted", str(fitted), "--prompt-file", str(prompt)]
    assert main(["generate", *common]) == 2
    assert "cannot be read" in capsys.readouterr().err
    prompt.write_text("")
    assert main(["generate", *common]) == 2
    assert "it is empty" in capsys.readouterr().err
    prompt.write_text("x")
    assert main(["generate", *common, "--max-new-tokens", "0"]) == 2
    assert "max-new-tokens 0 is not allowed" in capsys.readouterr().err


def test_a_file_for_another_model_is_refused(smollm2, fitted, tmp_path):
    from producer.cache import PackedCache  # noqa: PLC0415

    other = made.tiny_model("Llama")
    with pytest.raises(
        FileFormatError, match=r"fitted to 'SmolLM2.*' with num_layers 30, not to this model with 3"
    ):
        PackedCache.from_file(fitted, other)
    weights = tmp_path / "other.gguf"
    weights.write_bytes(np.arange(5, dtype=np.uint8).tobytes())
    with pytest.raises(FileFormatError, match="fitted to weights b179c9523d0e"):
        PackedCache.from_file(fitted, smollm2.model, weights=weights)
