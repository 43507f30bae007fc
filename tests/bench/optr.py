"""OptR: time and memory of learning corrections, by the number of layers.

    python -m tests.bench.optr [--training DIR --held-out DIR] [--layers N …] [--steps N] [--device D] [--shape …]

Without traces, random ones are made, in the shape of SmolLM2 (9 query heads, 3 KV heads, 64 channels, a model of 576,
2048 tokens) or in that of `--shape`, 32 8 128 4096 for an 8B model: times do not depend on what is in them. Every row
is a process of its own. Needs the extra `trace`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.tables import add_output, finish, table

_WORKER = "--worker"


def make_traces(folder, layers, tokens, shape):
    """Random traces; the keys have a mean and a strong channel."""
    import numpy as np  # noqa: PLC0415

    from producer.trace.files import ModelInfo, write_arrays, write_manifest  # noqa: PLC0415
    from producer.trace.texts import SequenceInfo  # noqa: PLC0415

    q, kv, d, hidden = shape
    info = ModelInfo("random", "Random", "00" * 32, layers, q, kv, d, hidden, d**-0.5)
    for seed, name in enumerate(("training", "held-out")):
        (folder / name).mkdir()
        for layer_idx in range(layers):
            rng = np.random.default_rng([seed, layer_idx])
            arrays = {
                side: rng.standard_normal((heads, tokens, d))
                for side, heads in (("q", q), ("k", kv), ("v", kv))
            }
            arrays["k"] += 2 * rng.standard_normal((1, 1, d))
            arrays["k"][..., 5] *= 8
            narrow = {side: array.astype(np.float32) for side, array in arrays.items()}
            write_arrays(folder / name, layer_idx, 0, narrow)
            w_o = np.random.default_rng(layer_idx).standard_normal((q, d, hidden)).astype(np.float32)
            write_arrays(folder / name, layer_idx, None, {"w_o": w_o})
        digest = f"{seed:064d}"
        write_manifest(folder / name, info, [SequenceInfo(name, digest, 0, tokens, digest, ())], {})


def work(arguments):
    """Learn, and print one line of JSON."""
    from producer.scheme.fit import fit_layer  # noqa: PLC0415
    from producer.scheme.optr import OptrOptions, learn_optr  # noqa: PLC0415
    from producer.scheme.registry import get_scheme  # noqa: PLC0415
    from producer.system.environment import peak_rss_bytes  # noqa: PLC0415
    from producer.trace.files import read_trace  # noqa: PLC0415

    training, held_out = (read_trace(arguments.training), read_trace(arguments.held_out))
    scheme = get_scheme(arguments.scheme)
    layers = range(min(arguments.layers[0], training.model.num_layers))
    start = {i: fit_layer(scheme, [training.layer(i, 0)]).rotations for i in layers}
    options = OptrOptions(
        steps=arguments.steps, device=arguments.device, learning_rate=arguments.learning_rate
    )
    seconds = {"key": 0.0, "value": 0.0}
    clock = time.perf_counter()

    def progress(_done, _total, what):
        nonlocal clock
        now = time.perf_counter()
        seconds["value" if "values of" in what else "key"] += now - clock
        clock = now

    found = learn_optr(start, scheme, training, held_out, options, progress)
    line = {
        "heads": found.key.chosen.size,
        **seconds,
        "peak_mb": (peak_rss_bytes() or 0) / 1e6,
        "moved": [float((stage.chosen > 0).mean()) for stage in (found.key, found.value)],
        "held_out": [
            float(stage.held_out.min(axis=-1).sum() / stage.held_out[..., 0].sum())
            for stage in (found.key, found.value)
        ],
    }
    print(json.dumps(line))


def run(arguments, layers, traces):
    """One row, of a process of its own."""
    command = [sys.executable, "-m", "tests.bench.optr", _WORKER, "--layers", str(layers)]
    for name in ("steps", "device", "scheme", "learning_rate"):
        command += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    command += ["--training", str(traces[0]), "--held-out", str(traces[1])]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(_WORKER, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--training", type=Path)
    parser.add_argument("--held-out", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 30])
    parser.add_argument("--tokens", type=int, default=2048, help="of the random traces")
    parser.add_argument("--shape", type=int, nargs=4, default=[9, 3, 64, 576], help="of the random traces")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--scheme", default="quarot-centred")
    parser.add_argument("--device", default="cpu")
    add_output(parser)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments)
        return
    if (arguments.training is None) != (arguments.held_out is None):
        parser.error("--training and --held-out are not allowed without each other")
    found = table(
        "optr",
        ("heads", ",d"),
        ("key stage, s", ".1f"),
        ("value stage, s", ".1f"),
        ("s a head", ".2f"),
        ("peak MB", ".0f"),
        "heads that moved K / V",
        "held-out loss K / V",
    )
    with tempfile.TemporaryDirectory() as name:
        traces = (arguments.training, arguments.held_out)
        if traces[0] is None:
            make_traces(Path(name), max(arguments.layers), arguments.tokens, arguments.shape)
            traces = (Path(name) / "training", Path(name) / "held-out")
        for layers in arguments.layers:
            row = run(arguments, layers, traces)
            moved, losses = ([f"{x:.2f}" for x in row[key]] for key in ("moved", "held_out"))
            total = row["key"] + row["value"]
            cells = (row["heads"], row["key"], row["value"], total / row["heads"], row["peak_mb"])
            found.add(*cells, " / ".join(moved), " / ".join(losses))
    finish([found], arguments.output, "optr")


if __name__ == "__main__":
    main()
