"""Checkpoints that are not whole, or are another model than they seem: refused by name; and what identifies a model."""

import json
import re
import shutil

import numpy as np
import pytest

from producer.cli import main
from producer.trace.files import read_trace
from producer.trace.model_info import differences
from tests.producer import made_models as models

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the libraries, on their import
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}


@pytest.fixture(scope="module")
def source(transformers, tmp_path_factory):
    """A tiny Llama as a folder, whose head is its own."""
    model = models.build(transformers, "Llama", tie_word_embeddings=False)
    return models.write_folder(transformers, tmp_path_factory.mktemp("models") / "llama", model)


@pytest.fixture
def folder(source, tmp_path):
    return shutil.copytree(source, tmp_path / "llama")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("\n".join(f"line {index} of a text with many, {index * index}" for index in range(60)))
    return path


def trace(model, text, output, *words):
    command = ["trace", "--model", str(model), "--text", str(text), "--tokens", "100", "-o", str(output)]
    return main([*command, *words])


def refused(model, text, tmp_path, capsys, *words):
    """Return the message of a refusal: one line, exit code 2, no file."""
    capsys.readouterr()
    assert trace(model, text, tmp_path / "refused", *words) == 2
    message = capsys.readouterr().err
    # The loader may draw a bar of its own before.
    assert sum(line.startswith("kvint2eval-producer: error") for line in re.split(r"[\r\n]+", message)) == 1
    assert "internal fault" not in message
    assert not (tmp_path / "refused").exists()
    return message


def info(model):
    from producer.trace.loading import load_model  # noqa: PLC0415

    return load_model(model).info


KEY = "model.layers.1.self_attn.k_proj.weight"


def test_a_missing_tensor_is_refused_by_name(folder, text, tmp_path, capsys):
    models.change_weights(folder, lambda tensors: tensors.pop(KEY))
    message = refused(folder, text, tmp_path, capsys)
    assert f"weights that are missing, which the loader fills at random: {KEY}" in message


def test_a_tensor_of_another_shape_is_refused_by_name(folder, text, tmp_path, capsys):
    models.change_weights(folder, lambda tensors: tensors.update({KEY: tensors[KEY][:16]}))
    assert KEY in refused(folder, text, tmp_path, capsys)


def test_a_tensor_that_is_left_over_is_refused_by_name(folder, text, tmp_path, capsys):
    models.change_weights(
        folder, lambda tensors: tensors.update({"model.layers.1.extra.weight": tensors[KEY]})
    )
    message = refused(folder, text, tmp_path, capsys)
    assert "weights that the model does not have: model.layers.1.extra.weight" in message


def test_shards_are_read_and_a_missing_one_or_tensor_is_refused(transformers, text, tmp_path, capsys):
    model = models.build(transformers, "Llama", tie_word_embeddings=False)
    folder = models.write_folder(transformers, tmp_path / "shards", model, max_shard_size="100KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert info(folder).num_layers == 2
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    own = content["weight_map"].pop(KEY)
    from safetensors.numpy import load_file, save_file  # noqa: PLC0415

    tensors = load_file(folder / own)
    del tensors[KEY]
    save_file(tensors, folder / own, metadata={"format": "pt"})
    index.write_text(json.dumps(content))
    assert KEY in refused(folder, text, tmp_path, capsys)
    shards[0].unlink()
    assert shards[0].name in refused(folder, text, tmp_path, capsys)


def test_weights_that_are_tied_are_not_missing_and_others_are(transformers, folder, text, tmp_path, capsys):
    tied = models.build(transformers, "Llama", tie_word_embeddings=True)
    path = models.write_folder(transformers, tmp_path / "tied", tied)
    assert trace(path, text, tmp_path / "t") == 0
    models.change_weights(folder, lambda tensors: tensors.pop("lm_head.weight"))
    assert "lm_head.weight" in refused(folder, text, tmp_path, capsys)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be loaded"),
        (lambda folder: models.change_config(folder, model_type="nothing"), "cannot be loaded"),
        (lambda folder: (folder / "model.safetensors").unlink(), "found no model.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 40), "cannot be loaded"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "cannot be loaded"),
        (lambda folder: models.change_config(folder, auto_map={"AutoConfig": "x.Y"}), ""),
        (lambda folder: models.change_config(folder, num_hidden_layers=3), "weights that are missing"),
        (
            lambda folder: models.change_config(folder, num_hidden_layers=1),
            "weights that the model does not have",
        ),
    ],
)
def test_folders_that_are_no_model_end_with_one_line(folder, text, tmp_path, capsys, fault, message):
    fault(folder)
    if message:
        assert message in refused(folder, text, tmp_path, capsys)
    else:  # code that a folder names is not run, and not needed here
        assert trace(folder, text, tmp_path / "t") == 0


# --- identity ---


def test_a_model_is_its_weights_configuration_tokenizer_and_versions(transformers, folder, tmp_path):
    own = info(folder)
    renamed = folder.rename(tmp_path / "another-name")
    assert differences(own, info(renamed)) == []
    (renamed / "consolidated.safetensors").write_bytes(b"another copy")
    assert differences(own, info(renamed)) == []
    models.change_config(renamed, rope_theta=1000.0, rope_parameters=None)
    models.change_config(renamed, rope_parameters={"rope_type": "default", "rope_theta": 1000.0})
    assert [part.partition(" ")[0] for part in differences(own, info(renamed))] == ["configuration"]
    other = tmp_path / "tokenizer"
    models.write_folder(
        transformers, other, models.build(transformers, "Llama", tie_word_embeddings=False), bos=False
    )
    assert [part.partition(" ")[0] for part in differences(own, info(other))] == ["tokenizer"]
    assert own.versions == tuple(f"{name} {version(name)}" for name in ("torch", "transformers"))


def version(name):
    import importlib.metadata  # noqa: PLC0415

    return importlib.metadata.version(name).partition("+")[0]


def test_another_configuration_is_refused_by_evaluate_and_fit(folder, text, tmp_path, capsys):
    """The configuration of `--model` is changed behind the trace's back: base of RoPE, scaling, epsilon."""
    assert trace(folder, text, tmp_path / "a", "--tokens", "420") == 0
    words = ["evaluate", "--trace", str(tmp_path / "a"), "--scheme", "quarot", "--processes", "1"]
    words += [
        "--model",
        str(folder),
        "--first-token",
        "330",
        "--untrained",
        "--state",
        str(tmp_path / "state"),
    ]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "16-bit" in out
    shown = [
        line.split()[0] for line in out.splitlines() if "quarot" in line or "int2" in line or "16-bit" in line
    ]
    assert shown[-3:] == ["16-bit", "int2", "quarot"]
    for changes in (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
        {"rms_norm_eps": 1e-3},
        {"max_position_embeddings": 4096},
    ):
        kept = (folder / "config.json").read_text()
        models.change_config(folder, **changes)
        assert main(words) == 2
        assert "differs from 'llama' in configuration as loaded" in capsys.readouterr().err
        (folder / "config.json").write_text(kept)
    renamed = folder.rename(tmp_path / "renamed")
    assert main([str(renamed) if word == str(folder) else word for word in words]) == 0
    # No run was made again: the state knows the model under its other name.
    assert len((tmp_path / "state").read_text().splitlines()) == 2


def test_a_model_that_guesses_is_refused_unless_asked_for(folder, text, tmp_path, capsys):
    def louder(tensors):
        tensors["lm_head.weight"] = 40 * tensors["lm_head.weight"]

    models.change_weights(folder, louder)
    assert trace(folder, text, tmp_path / "a", "--tokens", "420") == 0
    assert "is above the 300 words of the vocabulary: worse than guessing" in capsys.readouterr().err
    words = ["evaluate", "--trace", str(tmp_path / "a"), "--scheme", "quarot", "--processes", "1"]
    words += ["--model", str(folder), "--first-token", "330", "-o", str(tmp_path / "o.json")]
    assert main(words) == 2
    assert "the vocabulary has 300 words, so the model is worse than guessing" in capsys.readouterr().err
    assert not (tmp_path / "o.json").exists()  # before the first second of work
    assert main([*words, "--untrained"]) == 0
    assert (
        "perplexity discriminates nothing: with every scheme it is that of guessing"
        in capsys.readouterr().err
    )


# --- positions, types, needs ---


def test_more_tokens_than_positions_are_refused_unless_asked_for(transformers, text, tmp_path, capsys):
    model = models.build(transformers, "Llama", max_position_embeddings=90)
    folder = models.write_folder(transformers, tmp_path / "short", model)
    message = refused(folder, text, tmp_path, capsys)
    assert "sequences of 100 tokens are not allowed: short has 90 positions" in message
    assert trace(folder, text, tmp_path / "t", "--beyond-positions") == 0
    learned = models.build(transformers, "OPT", max_position_embeddings=90)
    path = models.write_folder(transformers, tmp_path / "learned", learned)
    message = refused(path, text, tmp_path, capsys, "--beyond-positions")
    assert "OPTForCausalLM has 90 learned positions (model.decoder.embed_positions)" in message


def test_a_capture_says_what_it_needs_and_what_it_cannot_see(folder, text, tmp_path, capsys):
    assert trace(folder, text, tmp_path / "t") == 0
    out = capsys.readouterr().out
    size = sum(file.stat().st_size for file in (tmp_path / "t").glob("*.safetensors"))
    said = float(out.partition("needs ")[2].partition(" GB on disk")[0]) * 1e9
    assert said == pytest.approx(size, rel=0.05)
    assert "compares the capture with the model as it was loaded, and cannot see a wrong load" in out


def test_a_tokenizer_of_another_model_is_refused(transformers, text, tmp_path, capsys):
    model = models.build(transformers, "Llama", vocab_size=100)
    folder = models.write_folder(transformers, tmp_path / "few-words", model)
    message = refused(folder, text, tmp_path, capsys)
    assert "is none of the 100 words of the model: the tokenizer is another model's" in message


def test_an_interrupted_capture_goes_on_where_it_ended(folder, text, tmp_path, monkeypatch, capsys):
    from producer.trace import capture  # noqa: PLC0415

    whole = tmp_path / "whole"
    assert trace(folder, text, whole, "--sequences", "3") == 0
    calls = []
    real = capture._capture_sequence

    def counted(loaded, ids, index, *rest):
        calls.append(index)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(loaded, ids, index, *rest)

    monkeypatch.setattr(capture, "_capture_sequence", counted)
    assert trace(folder, text, tmp_path / "t", "--sequences", "3") == 130
    assert calls == [0, 1, 2]
    assert trace(folder, text, tmp_path / "t", "--sequences", "2") == 2
    assert "it holds an unfinished trace of another model, of other texts" in capsys.readouterr().err
    assert trace(folder, text, tmp_path / "t", "--sequences", "3") == 0
    assert calls == [0, 1, 2, 2]
    names = sorted(file.name for file in whole.iterdir())
    assert sorted(file.name for file in (tmp_path / "t").iterdir()) == names
    for name in names:
        assert (tmp_path / "t" / name).read_bytes() == (whole / name).read_bytes()


def test_bfloat16_is_another_model_for_a_comparison(folder, text, tmp_path, capsys):
    assert trace(folder, text, tmp_path / "a", "--tokens", "420", "--dtype", "bfloat16") == 0
    assert read_trace(tmp_path / "a").model.dtype == "bfloat16"
    words = ["evaluate", "--trace", str(tmp_path / "a"), "--scheme", "quarot", "--processes", "1"]
    words += ["--model", str(folder), "--first-token", "330", "--untrained"]
    assert main([*words, "--dtype", "float32"]) == 2
    assert "dtype float32 is not allowed: the trace was captured in bfloat16" in capsys.readouterr().err
    assert main(words) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dtype", "int8"], "dtype 'int8' is not allowed: float32, float16, bfloat16"),
        (["--device", "tpu"], "device 'tpu' is not allowed: cpu, cuda or cuda:N"),
        (["--tokens", "64"], "sequences of 64 tokens are not allowed"),
        (["--text", "missing.txt"], "text missing.txt cannot be read: No such file"),
    ],
)
def test_arguments_are_checked_before_the_model_is_read(text, tmp_path, capsys, words, message):
    (tmp_path / "no-model").mkdir()
    assert message in refused(tmp_path / "no-model", text, tmp_path, capsys, *words)


def test_a_device_that_is_not_there_is_a_delegation(text, tmp_path, capsys):
    import torch  # noqa: PLC0415

    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    assert trace(tmp_path, text, tmp_path / "t", "--device", "cuda") == 3
    assert "device cuda is not there: PyTorch finds 0 CUDA devices" in capsys.readouterr().out


@pytest.mark.gpu
def test_a_capture_on_a_gpu_is_that_of_the_cpu(folder, text, tmp_path):
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device here")
    assert trace(folder, text, tmp_path / "cpu") == 0
    assert trace(folder, text, tmp_path / "gpu", "--device", "cuda") == 0
    cpu, gpu = (read_trace(tmp_path / name) for name in ("cpu", "gpu"))
    assert cpu.model == gpu.model
    assert np.abs(cpu.layer(1, 0).k - gpu.layer(1, 0).k).max() <= 1e-3 * np.abs(cpu.layer(1, 0).k).max()


# --- GGUF ---


def keys_of(model, text, output):
    assert trace(model, text, output) == 0
    held = read_trace(output)
    return np.stack([held.layer(index, 0).k for index in range(2)])


@pytest.mark.parametrize("scaling", [None, YARN, LINEAR], ids=["none", "yarn", "linear"])
def test_a_gguf_file_is_the_model_of_its_folder(transformers, text, tmp_path, scaling):
    """Keys of the same weights from a folder and from a file, with and without scaled RoPE."""
    changes = {} if scaling is None else {"rope_parameters": scaling}
    model = models.build(transformers, "Llama", tie_word_embeddings=False, **changes)
    folder = models.write_folder(transformers, tmp_path / "folder", model)
    metadata = {}
    if scaling is not None:
        metadata = {"rope.scaling.type": scaling["rope_type"], "rope.scaling.factor": scaling["factor"]}
        if "original_max_position_embeddings" in scaling:
            metadata["rope.scaling.original_context_length"] = 512
    file = models.write_gguf(tmp_path / "model.gguf", model, metadata)
    expected, found = keys_of(folder, text, tmp_path / "a"), keys_of(file, text, tmp_path / "b")
    assert np.abs(expected - found).max() <= 1e-4 * np.abs(expected).max()
    if scaling is not None:
        plain = models.write_gguf(tmp_path / "plain.gguf", model)
        assert np.abs(expected - keys_of(plain, text, tmp_path / "c")).max() > 0.1


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"rope.scaling.type": "longrope", "rope.scaling.factor": 4.0}, "rope.scaling.type longrope"),
        (
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.yarn_log_multiplier": 0.1,
            },
            "rope.scaling.yarn_log_multiplier 0.1",
        ),
        ({"attn_logit_softcapping": 30.0}, "attn_logit_softcapping 30.0 (no place in the configuration)"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping 30.0 (no place in the configuration)"),
        ({"attention.sliding_window": 64}, "attention.sliding_window 64 (loaded: 0)"),
        ({"attention.scale": 0.3}, "attention.scale 0.3"),
        ({"logit_scale": 0.5}, "logit_scale 0.5 (no place in the configuration)"),
        ({"attention.clamp_kqv": 8.0}, "attention.clamp_kqv 8.0 (not known)"),
        ({"attention.max_alibi_bias": 8.0}, "attention.max_alibi_bias 8.0 (not known)"),
        ({"attention.causal": False}, "attention.causal False (not known)"),
        ({"attention.value_length": 8}, "attention.key_length 16"),
        ({"rope.dimension_count": 8}, "weights of another shape"),
    ],
)
def test_metadata_that_the_loader_does_not_apply_are_refused_by_name(
    transformers, text, tmp_path, capsys, metadata, message
):
    model = models.build(transformers, "Llama", tie_word_embeddings=False)
    if "attention.value_length" in metadata:
        metadata = {"attention.key_length": 16, **metadata}
    file = models.write_gguf(tmp_path / "model.gguf", model, metadata)
    assert message in refused(file, text, tmp_path, capsys)


def test_metadata_that_the_configuration_has_a_place_for_are_applied(transformers, tmp_path):
    from producer.trace.checkpoint import open_checkpoint  # noqa: PLC0415

    model = models.build(
        transformers, "Llama", rms_norm_eps=1e-3, rope_parameters={"rope_type": "default", "rope_theta": 5e5}
    )
    file = models.write_gguf(
        tmp_path / "model.gguf", model, {"rope.scaling.finetuned": True, "attention.key_length": 16}
    )
    config = open_checkpoint(file).config
    assert config.rms_norm_eps == pytest.approx(1e-3)
    assert config.rope_parameters["rope_theta"] == 5e5
    assert config.max_position_embeddings == 2048


def test_tensors_of_a_gguf_file_that_are_missing_or_left_over_are_refused(
    transformers, text, tmp_path, capsys
):
    model = models.build(transformers, "Llama", tie_word_embeddings=False)
    file = models.write_gguf(tmp_path / "a.gguf", model, without=("blk.1.attn_k.weight",))
    assert "weights that are missing" in (message := refused(file, text, tmp_path, capsys))
    assert KEY in message
    factors = {"rope_freqs.weight": np.linspace(1, 8, 8).astype(np.float32)}
    file = models.write_gguf(tmp_path / "b.gguf", model, tensors=factors)
    message = refused(file, text, tmp_path, capsys)
    assert "tensors that the loader does not read: rope_freqs.weight" in message
    tied = models.build(transformers, "Llama", tie_word_embeddings=True)
    assert trace(models.write_gguf(tmp_path / "c.gguf", tied), text, tmp_path / "t") == 0
    (tmp_path / "d.gguf").write_bytes(b"GGUF and no more")
    assert "d.gguf cannot be loaded" in refused(tmp_path / "d.gguf", text, tmp_path, capsys)


# --- texts ---


def test_every_sequence_begins_as_the_model_expects(folder, text, tmp_path):
    assert trace(folder, text, tmp_path / "t", "--sequences", "2") == 0
    held = read_trace(tmp_path / "t")
    first, second = (held.token_ids(index) for index in range(2))
    assert (first[0], second[0]) == (1, 1)
    content = text.read_bytes()
    assert (first[1:] - 3).astype(np.uint8).tobytes() == content[:99]
    assert (second[1:] - 3).astype(np.uint8).tobytes() == content[99:198]
    assert [(one.first_token, one.special_tokens, one.end_token) for one in held.sequences] == [
        (0, 1, 99),
        (99, 1, 198),
    ]
