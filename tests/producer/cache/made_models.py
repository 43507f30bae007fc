"""Random models of several families, made small, in float64, and schemes fitted to nothing.

In float64 the rounding of a model does not reach the float32 rows that are quantized, so that laws hold to its last
bits and a test can ask for them.
"""

from dataclasses import replace

import numpy as np

FAMILIES = ("Llama", "Qwen2", "Qwen3", "Gemma3", "Mistral", "Phi3")
SINK, RECENT, FLUSH = 4, 8, 4


def tiny_model(family, *, kv_heads=2, layers=3, dtype="float64", **changes):
    """A random model of 4 query heads of 16 channels; Gemma-3 has windows on two layers of three."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    torch.set_num_threads(1)  # products this small take longer on two
    torch.manual_seed(5)
    options = {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": kv_heads,
        "head_dim": 16,
        "max_position_embeddings": 2048,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if family == "Gemma3":
        options |= {"sliding_window": 24, "query_pre_attn_scalar": 16}
        options |= {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"][:layers]}
    if family == "Mistral":
        options |= {"sliding_window": None}
    if family == "Phi3":
        options |= {"original_max_position_embeddings": 2048}
    options |= changes
    config_class = {"Gemma3": "Gemma3TextConfig"}.get(family, f"{family}Config")
    config = getattr(transformers, config_class)(**options)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    model = model.to(getattr(torch, dtype)).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and ("proj" in name or "lm_head" in name):
            parameter.data *= 4  # attention that is not flat, logits that are apart
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    return model


def made_layers(kind="fitted", layers=3, kv_heads=2, head_dim=16, **windows):
    """A scheme with small windows for every layer; `fitted` has means, matrices, clips and feedback for every head."""
    from producer.quantize.feedback import feedback_factors  # noqa: PLC0415
    from producer.scheme.fitted_layer import FittedLayer  # noqa: PLC0415
    from producer.scheme.registry import SCHEMES  # noqa: PLC0415
    from producer.transform.dense import InvertibleTransform, build_hadamard, build_identity  # noqa: PLC0415
    from producer.transform.transform_file import LayerTransforms  # noqa: PLC0415

    changes = {"sink": SINK, "recent": RECENT} | windows
    if kind != "fitted":
        scheme = replace(SCHEMES[kind], **changes)
        build = {"identity": build_identity, "quarot": build_hadamard, "hadamard": build_hadamard}
        sides = [build[name](head_dim) for name in (scheme.key_rotation, scheme.value_rotation)]
        return {index: FittedLayer(scheme, LayerTransforms(*sides)) for index in range(layers)}
    scheme = replace(SCHEMES["balanced-feedback"], **changes)
    made = {}
    for index in range(layers):
        rng = np.random.default_rng(index)
        sides, factors = [], []
        for _ in "kv":
            matrices = rng.standard_normal((kv_heads, head_dim, head_dim)) + 3 * np.eye(head_dim)
            metric = rng.standard_normal((kv_heads, head_dim, head_dim))
            metric = metric @ metric.swapaxes(1, 2) + np.eye(head_dim)
            inverses = np.linalg.inv(matrices).astype(np.float32)
            sides.append(
                InvertibleTransform(kind="balanced", matrices=matrices.astype(np.float32), inverses=inverses)
            )
            factors.append(feedback_factors(metric))
        clips = tuple(np.linspace(0.6, 0.9, kv_heads).tolist())
        mean = rng.standard_normal((kv_heads, head_dim)).astype(np.float32)
        rotations = LayerTransforms(
            *sides,
            mean,
            key_clips=clips,
            value_clips=clips[::-1],
            key_feedback=factors[0],
            value_feedback=factors[1],
        )
        made[index] = FittedLayer(scheme, rotations)
    return made


def tokens(rows, count, seed=0):
    """Random token ids, none of them special."""
    import torch  # noqa: PLC0415

    return torch.randint(3, 300, (rows, count), generator=torch.Generator().manual_seed(seed))


def logits_of(model, ids, cache, chunks=None, attention_mask=None):
    """Logits of ids in chunks; the rest in one."""
    import torch  # noqa: PLC0415

    from producer.cache.binding import CACHE_ARGUMENT  # noqa: PLC0415

    found, first = [], 0
    for count in [*(chunks or []), ids.shape[1] - sum(chunks or [])]:
        if not count:
            continue
        end = first + count
        options = {}
        if attention_mask is not None:
            options["attention_mask"] = attention_mask[:, :end]
            places = (attention_mask[:, :end].cumsum(1) - 1).clamp(min=0)
            options["position_ids"] = places[:, first:end]
        with torch.no_grad():
            out = model(input_ids=ids[:, first:end], **{CACHE_ARGUMENT: cache}, **options)
        found.append(out.logits)
        first = end
    return torch.cat(found, dim=1)


def body(cache):
    """Codes and metadata of all packed layers, as a list of tensors."""
    cache.nbytes  # noqa: B018 - puts what has left the windows into the body
    groups = [rows for layer in cache.packed_layers for _, _, rows in layer.groups]
    return [held for rows in groups for part in (rows.codes, rows.metadata) for held in part.values()]


def equal(one, other):
    """Whether two lists of tensors are equal bit for bit."""
    import torch  # noqa: PLC0415

    return len(one) == len(other) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


def apart(one, other):
    """Largest difference over the largest entry."""
    return float((one - other).abs().max() / other.abs().max())
