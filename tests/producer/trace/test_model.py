"""Models of four families, made small, and the real SmolLM2: capture, and the quantized cache in use."""

import dataclasses
import json
import pydoc_data.topics
from types import SimpleNamespace

import numpy as np
import pytest

from producer.cli import main
from producer.errors import SpecError
from producer.scheme.fit import fit_layer
from producer.scheme.registry import SCHEMES
from producer.trace.capture import capture_trace
from producer.trace.model_info import ModelInfo
from producer.trace.text_tokens import cut_text
from tests.producer import made_models as models
from tests.producer import made_traces as made

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the libraries, on their import
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

FAMILIES = ("Llama", "Qwen3", "Phi3", "Phi")


def silent(_done, _total, _what):
    pass


def loaded_of(model, *, dtype="float32", bos=None):
    """A model with a tokenizer of bytes, its shape as the probe finds it."""
    from producer.trace.loading import describe  # noqa: PLC0415
    from producer.trace.model import LoadedModel  # noqa: PLC0415

    identity = {
        "weights_sha256": "00" * 32,
        "config_sha256": "01" * 32,
        "tokenizer_sha256": "02" * 32,
        "versions": ("torch 0",),
    }
    tokenizer = models.Bytes(bos)
    try:
        info = describe(model, model.config.model_type, 80, dtype, identity)
    except SpecError:
        info = made.INFO  # the test wants the capture to refuse it
    return LoadedModel(model, tokenizer, info)


def small_model(transformers, family, **changes):
    """A random model of a family: 2 layers, 4 query heads, 2 KV heads of 16 channels."""
    return loaded_of(models.build(transformers, family, **changes))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(
        "\n".join(f"line {index} of a text that has many of them, {index * index}" for index in range(40))
    )
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_a_capture_gives_the_models_own_attention(transformers, family, text, tmp_path):
    loaded = small_model(transformers, family)
    trace = capture_trace(loaded, [text], 100, 2, tmp_path / "trace", silent)
    assert trace.verification["perplexity_difference"] <= 1e-6
    assert trace.verification["attention_output_difference"] <= 1e-5
    assert [(s.first_token, s.tokens) for s in trace.sequences] == [(0, 100), (100, 100)]
    layer = trace.layer(1, 1)
    assert layer.q.shape == (4, 100, 16)
    assert layer.k.shape == (2, 100, 16)
    assert layer.w_o.shape == (4, 16, 64)
    with pytest.raises(SpecError, match="it holds a trace"):
        capture_trace(loaded, [text], 100, 2, tmp_path / "trace", silent)


def test_a_wrong_capture_is_refused(transformers, text, tmp_path, monkeypatch):
    from producer.trace import capture  # noqa: PLC0415

    loaded = small_model(transformers, "Llama")

    def looks_ahead(q, k, v, scaling):
        import torch  # noqa: PLC0415

        return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scaling, enable_gqa=True)

    monkeypatch.setattr(capture, "causal_attention", looks_ahead)
    with pytest.raises(SpecError, match="the captured attention is not the model's: perplexity differs by"):
        capture_trace(loaded, [text], 100, 1, tmp_path / "trace", silent)
    assert not (tmp_path / "trace" / "trace.json").exists()


def test_short_and_unreadable_texts_are_refused(transformers, text, tmp_path):
    loaded = small_model(transformers, "Llama")
    with pytest.raises(SpecError, match="tokens, 30 sequences of 100 are needed"):
        cut_text(loaded.tokenizer, text, 100, 30)
    (tmp_path / "bad").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match=r"text .*bad cannot be read"):
        cut_text(loaded.tokenizer, tmp_path / "bad", 10, 1)


def fitted_to(loaded, scheme, text, tmp_path):
    trace = capture_trace(loaded, [text], 400, 1, tmp_path / "calibration", silent)
    return [fit_layer(scheme, [trace.layer(index, 0)]) for index in range(2)], trace


def dense_attention(q, exact, quantized, scaling, sink, recent):
    """The same, row by row over all columns, in float64."""
    group = q.shape[1] // exact[0].shape[1]
    found = np.empty(q.shape)
    for head, t in np.ndindex(q.shape[1], q.shape[2]):
        places = np.arange(t + 1)
        near = ((places < sink) | (places > t - recent))[:, None]
        k, v = (
            np.where(near, a[0, head // group, : t + 1], b[0, head // group, : t + 1]).astype(float)
            for a, b in zip(exact, quantized, strict=True)
        )
        scores = k @ q[0, head, t].astype(float) * scaling
        weights = np.exp(scores - scores.max())
        found[0, head, t] = weights @ v / weights.sum()
    return found


@pytest.mark.parametrize(
    ("tokens", "sink", "recent"),
    [(600, 5, 20), (600, 0, 1), (257, 300, 8), (513, 64, 256), (300, 10, 400), (256, 64, 0), (1, 1, 1)],
)
def test_the_windows_are_read_as_they_say(tokens, sink, recent):
    torch = pytest.importorskip("torch", reason="the extra `trace` is not installed")
    from producer.experiment.trace.perplexity import windowed_attention  # noqa: PLC0415

    rng = np.random.default_rng(2)
    q = rng.standard_normal((1, 4, tokens, 8))
    exact, other = ([rng.standard_normal((1, 2, tokens, 8)) for _ in "kv"] for _ in range(2))
    found = windowed_attention(
        *(torch.from_numpy(q), tuple(map(torch.from_numpy, exact)), tuple(map(torch.from_numpy, other))),
        0.3,
        sink,
        recent,
    ).numpy()
    assert np.abs(found - dense_attention(q, exact, other, 0.3, sink, recent)).max() <= 1e-12


def test_one_pass_is_decode_token_by_token(transformers, text, tmp_path):
    # What a query sees does not depend on later tokens, so a pass over more tokens gives the same logits.
    from producer.experiment.trace.perplexity import ModelReference  # noqa: PLC0415
    from producer.trace.model import logits_of, run_hidden, use_attention  # noqa: PLC0415

    loaded = small_model(transformers, "Llama")
    fitted, _ = fitted_to(loaded, SCHEMES["quarot-centred"], text, tmp_path)
    _, ids = cut_text(loaded.tokenizer, text, 500, 1)[0]
    whole, part = (ModelReference(loaded, ids[:count], 400).errors(fitted) for count in (500, 450))
    assert whole.perplexity != whole.reference_perplexity
    assert whole.divergence > 0
    assert whole.residual.shape == (2,)
    assert (whole.residual > 0).all()
    assert part.first == whole.first == 400
    assert 0 < whole.top1_agreement < 1

    def logits(count):
        import torch  # noqa: PLC0415

        from producer.experiment.trace.perplexity import windowed_attention  # noqa: PLC0415

        def attend(layer_idx, q, k, v, scaling):
            stored = fitted[layer_idx].quantize_all(k[0].numpy(), v[0].numpy())
            return windowed_attention(
                q, (k, v), tuple(torch.from_numpy(x)[None] for x in stored), scaling, 64, 256
            )

        with use_attention(loaded, attend):
            return logits_of(loaded, run_hidden(loaded, ids[:count], lambda _index, _states: None))

    assert np.abs(logits(500)[:450] - logits(450)).max() <= 2e-4


def test_runs_of_all_sequences_go_on_where_they_ended(transformers, text, tmp_path, monkeypatch):
    from producer.experiment.trace import model_runs  # noqa: PLC0415
    from producer.experiment.trace.perplexity import ModelReference  # noqa: PLC0415
    from producer.experiment.trace.run_state import RunState  # noqa: PLC0415

    loaded = small_model(transformers, "Llama")
    trace = capture_trace(loaded, [text], 400, 2, tmp_path / "trace", silent)
    layers = [[trace.layer(index, part) for part in range(2)] for index in range(2)]
    schemes = {name: [fit_layer(SCHEMES[name], layer) for layer in layers] for name in ("int2", "oscar")}
    monkeypatch.setattr(model_runs, "load_model", lambda *_args, **_options: loaded)
    checkpoint = SimpleNamespace(path=tmp_path)
    shown = []

    def interrupt(done, _total, what):
        shown.append(what)
        if done == 6:  # layers: two of each run
            raise KeyboardInterrupt

    path = tmp_path / "state.jsonl"
    with pytest.raises(KeyboardInterrupt):
        model_runs.run_schemes(checkpoint, trace, schemes, 380, RunState(path), interrupt, untrained=True)
    assert shown[0] == "model on text.txt with int2"
    assert shown[-1] == "model on text.txt with oscar"
    assert len(path.read_text().splitlines()) == 3
    found = model_runs.run_schemes(checkpoint, trace, schemes, 380, RunState(path), silent, untrained=True)
    for name, fitted in schemes.items():
        for index, errors in enumerate(found[name]):
            direct = ModelReference(loaded, trace.token_ids(index), 380).errors(fitted)
            assert errors.perplexity == pytest.approx(direct.perplexity, rel=1e-6)
            assert errors.residual == pytest.approx(direct.residual, rel=1e-5)
    monkeypatch.setattr(model_runs, "load_model", None)  # nothing is left to run
    again = model_runs.run_schemes(checkpoint, trace, schemes, 380, RunState(path), silent, untrained=True)
    assert [run.perplexity for run in again["oscar"]] == [run.perplexity for run in found["oscar"]]
    few = dataclasses.replace(trace, model=dataclasses.replace(trace.model, vocab_size=2))
    with pytest.raises(
        SpecError, match=r"a 16-bit perplexity of .* is not allowed: the vocabulary has 2 words"
    ):
        model_runs.require_model_of(few, text)


def test_a_pass_that_reads_no_cache_is_no_measurement(transformers, text, tmp_path):
    from producer.experiment.trace.perplexity import ModelReference  # noqa: PLC0415

    loaded = small_model(transformers, "Llama")
    fitted, _ = fitted_to(loaded, SCHEMES["quarot"], text, tmp_path)
    _, ids = cut_text(loaded.tokenizer, text, 400, 1)[0]
    with pytest.raises(SpecError, match="cache not exercised before token 321"):
        ModelReference(loaded, ids, 320).errors(fitted)
    with pytest.raises(SpecError, match="first scored token 310 is not allowed: 1 … 299"):
        ModelReference(loaded, ids[:300], 310).errors(fitted)


def test_the_helper_writes_files_that_torch_reads(tmp_path):
    torch = pytest.importorskip("torch", reason="the extra `trace` is not installed")
    for values in (np.arange(12, dtype=np.float32).reshape(3, 4), np.array([3, 4], dtype=np.int32)):
        made.write_pt(tmp_path / "x.pt", values)
        assert (torch.load(tmp_path / "x.pt", weights_only=True).numpy() == values).all()


# --- the real model ---


def test_smollm2_is_the_model_that_it_should_be(smollm2):
    assert smollm2.info == ModelInfo(
        name="SmolLM2-135M-Instruct.Q4_1.gguf",
        architecture="LlamaForCausalLM",
        weights_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        hidden_size=576,
        scaling=0.125,
        vocab_size=49152,
        config_sha256=smollm2.info.config_sha256,
        tokenizer_sha256=smollm2.info.tokenizer_sha256,
        dtype="float32",
        versions=smollm2.info.versions,
    )
    assert [entry.partition(" ")[0] for entry in smollm2.info.versions] == ["torch", "transformers", "gguf"]


def test_schemes_on_smollm2(smollm2, smollm2_path, tmp_path):
    """The order of the schemes on held-out text, and the quantized cache in use."""
    texts = [tmp_path / "one.txt", tmp_path / "two.txt"]
    topics = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
    texts[0].write_text("\n".join(topics[:20]))
    texts[1].write_text("\n".join(topics[40:60]))
    traces = [capture_trace(smollm2, [path], 512, 1, tmp_path / path.stem, silent) for path in texts]
    for trace in traces:
        assert trace.verification["attention_output_difference"] <= 1e-5
        assert 3 < trace.verification["perplexity"] < 60
    output = tmp_path / "out.json"
    folders = ["--calibration", str(traces[0].folder), "--trace", str(traces[1].folder)]
    names = ("centred", "quarot", "quarot-centred", "oscar", "oscar-centred")
    model = ["--model", str(smollm2_path), "--first-token", "400", "-o", str(output)]
    assert main(["evaluate", *folders, *(word for name in names for word in ("--scheme", name)), *model]) == 0
    schemes = {scheme["name"]: scheme for scheme in json.loads(output.read_text())["schemes"]}
    error = {name: scheme["summary"]["relative_error"] for name, scheme in schemes.items()}
    assert error["int2"] > 2 * error["quarot"] > 2 * error["quarot-centred"]
    assert error["int2"] > 10 * error["centred"]
    assert error["oscar"] > error["oscar-centred"]
    assert np.array(schemes["oscar"]["figures"]["error"]).shape == (1, 30, 3)
    plain, centred = (schemes[name]["runs"][0] for name in ("int2", "oscar-centred"))
    assert plain["reference_perplexity"] == centred["reference_perplexity"]
    assert centred["reference_perplexity"] < centred["perplexity"] < plain["perplexity"]
    assert centred["divergence_nats"] < 0.3 * plain["divergence_nats"]
    assert centred["top1_agreement"] > plain["top1_agreement"]
    assert len(centred["residual_by_layer"]) == 30
    assert sum(centred["residual_by_layer"]) < sum(plain["residual_by_layer"])
    assert main(["check", str(output)]) == 0


def test_records_of_smollm2(smollm2, tmp_path, capsys):
    """Records of three layers are sound, claim what is plain, and come out again."""
    topics = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
    folders = []
    for name, text, sequences in (("fitted", topics[:12], 1), ("judged", topics[40:], 6)):
        path = tmp_path / f"{name}.txt"
        path.write_text("\n".join(text))
        capture_trace(smollm2, [path], 448, sequences, tmp_path / name, silent)
        folders += ["--calibration" if name == "fitted" else "--trace", str(tmp_path / name)]
    output = str(tmp_path / "records.jsonl")
    # Most of the 448 tokens are quantized, or the records are refused.
    layers = [word for layer in (4, 14, 24) for word in ("--layer", str(layer))]
    layers += ["--sink", "16", "--recent", "64"]
    arms = ["--dialect", "affine-midpoint", "--centred", "--arm", "quarot", "--arm", "oscar"]
    grid = ["--grid", "1,0.95,0.9,0.8,0.7,0.6,0.5,0.4,0.3"]
    assert main(["compare", *folders, *arms, *grid, *layers, "-o", output, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["records"]
    assert [row["finding"] for row in rows] == ["environment-not-cuda"] * 3
    assert all(row["nmse_mean"][row["selected"]] < row["nmse_mean"]["identity"] for row in rows)
    assert any(row["claim"] for row in rows)
    assert main(["rederive", output, *folders]) == 0
    assert "deterministic fields of 3 records agree" in capsys.readouterr().out
