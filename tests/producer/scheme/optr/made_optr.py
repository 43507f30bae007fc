"""Small traces, starts and schemes for OptR."""

import dataclasses

import numpy as np

from producer.scheme.registry import Scheme
from producer.trace.files import ModelInfo, read_trace, write_arrays, write_manifest
from producer.trace.texts import SequenceInfo
from producer.transform.dense import DenseRotation, InvertibleTransform
from producer.transform.transform_file import LayerTransforms
from tests.producer import made_traces as made

#: 2 KV heads with 3 query heads each.
INFO = ModelInfo(
    name="made",
    architecture="MadeForTests",
    weights_sha256="ab" * 32,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    hidden_size=24,
    scaling=16**-0.5,
    config_sha256="ac" * 32,
    tokenizer_sha256="ad" * 32,
)
SCHEME = Scheme(name="made", center_keys=True, sink=4, recent=8)
QUERIES = 6


def trace(folder, seed, lengths, info=INFO, arrays=made.layer_arrays):
    """A trace of sequences of given lengths; the output weights do not depend on the seed."""
    folder.mkdir()
    entries = []
    for layer_idx in range(info.num_layers):
        write_arrays(folder, layer_idx, None, {"w_o": made.weights(layer_idx, info)})
        for place, tokens in enumerate(lengths):
            write_arrays(folder, layer_idx, place, arrays(seed + 10 * place + layer_idx, tokens, info))
    for place, tokens in enumerate(lengths):
        name = f"{folder.name}-{place}"
        digest = name.encode().hex().ljust(64, "0")
        entries.append(SequenceInfo(name, digest, 0, tokens, digest, ()))
    write_manifest(folder, info, entries, {"perplexity": 2.0})
    return read_trace(folder)


def orthogonal(seed, heads, d):
    """Random rotations."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((heads, d, d)))[0].astype(np.float32)


def invertible(seed, heads, d):
    """Random transforms of condition number 4."""
    stretch = np.linspace(0.5, 2, d)
    u, v = orthogonal(seed, heads, d).astype(float), orthogonal(seed + 1, heads, d).astype(float)
    return InvertibleTransform(
        kind="balanced",
        matrices=((u * stretch) @ v).astype(np.float32),
        inverses=(v.swapaxes(1, 2) / stretch @ u.swapaxes(1, 2)).astype(np.float32),
    )


def start(info=INFO, *, is_general=False, **changes):
    """A start for all layers: random transforms by head, a key mean, the scheme's clips."""
    found = {}
    for layer_idx in range(info.num_layers):
        sides = []
        for seed in (layer_idx, layer_idx + 50):
            if is_general:
                sides.append(invertible(seed, info.num_kv_heads, info.head_dim))
            else:
                matrices = orthogonal(seed, info.num_kv_heads, info.head_dim)
                sides.append(DenseRotation(kind="oscar", matrices=matrices))
        mean = made.layer_arrays(layer_idx, 100, info)["k"].mean(axis=1)
        found[layer_idx] = dataclasses.replace(LayerTransforms(*sides, mean), **changes)
    return found


def silent(_done, _total, _what):
    pass
