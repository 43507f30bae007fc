"""Calibration statistics of a layer: key mean, covariances, attention weights, each computed once for all schemes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from producer.errors import SpecError
from producer.scheme.window_attention import WindowAttention
from producer.trace.layer import LayerTrace
from producer.transform.attention_weighted import attention_covariances, head_reads, key_pairs, value_pairs
from producer.transform.balanced import output_covariance
from producer.transform.centring import center_keys, key_mean
from producer.transform.covariance import covariance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from producer.numerics.arrays import Float32Array, Float64Array
    from producer.transform.attention_weighted import HeadReads, Pairs
    from producer.transform.base import Side

    Covariances: TypeAlias = tuple[Float64Array, Float64Array]

_Found = TypeVar("_Found")

__all__ = ["KEPT_BYTES", "LayerCalibration"]

#: Most bytes of attention weights that are kept for the next scheme; those of a longer calibration are computed again.
KEPT_BYTES = 256 << 20


class LayerCalibration:
    """One layer of the calibration sequences, with what schemes are fitted to.

    Statistics are computed when they are asked for, once; so a layer is read once, and the schemes of a comparison
    share what they have in common.

    Parameters
    ----------
    layers : sequence of LayerTrace
        The same layer of at least one sequence.

    Raises
    ------
    SpecError
        If there is no sequence.
    """

    def __init__(self, layers: Sequence[LayerTrace]) -> None:
        if not layers:
            raise SpecError("no calibration sequence: at least one is needed")
        self.layers = tuple(layers)
        self._found: dict[object, Any] = {}
        self._kept = 0

    @functools.cached_property
    def joined(self) -> LayerTrace:
        """All sequences, one after the other along the tokens."""
        first = self.layers[0]
        if len(self.layers) == 1:
            return first
        arrays = {
            name: np.concatenate([getattr(layer, name) for layer in self.layers], axis=1) for name in "qkv"
        }
        return LayerTrace(layer_idx=first.layer_idx, w_o=first.w_o, scaling=first.scaling, **arrays)

    @functools.cached_property
    def key_mean(self) -> Float32Array:
        """Mean key of every KV head over all tokens, float32, shape (num_kv_heads, head_dim)."""
        return key_mean(self.joined.k)

    def stored_keys(self, index: int, *, centred: bool) -> Float32Array:
        """Return the keys of a sequence as they are stored, float32, shape (num_kv_heads, tokens, head_dim)."""
        k = self.layers[index].k
        if not centred:
            return k
        return self._once(("keys", index), lambda: center_keys(k, self.key_mean))

    def covariance(self, target: str, *, centred: bool = False) -> Float64Array:
        """Return a covariance over all tokens (`producer.transform.covariance`); `centred` is for keys."""
        q, k, v = self.joined.q, self.joined.k, self.joined.v
        return self._once(
            (target, centred),
            lambda: covariance(target, q, center_keys(k, self.key_mean) if centred else k, v),
        )

    def plain(self, side: Side, *, centred: bool) -> Covariances:
        """Return the covariances of what a side stores and of what reads it (E32, E34).

        Notes
        -----
        Keys: Σ k kᵀ/n and Σ q qᵀ/(n·g). Values: Σ v vᵀ/n and Σ W Wᵀ. Values are not centred when they are stored, so
        neither is their covariance: what the quantizer sees has their mean.
        """
        if side == "key":
            return self.covariance("ktk", centred=centred), self.covariance("qqt")
        w_o, heads = self.joined.w_o, self.joined.num_kv_heads
        return self.covariance("vtv"), self._once("output", lambda: output_covariance(w_o, heads))

    def weighted(
        self, side: Side, *, centred: bool, windows: tuple[int, int], ridge: float, shrinkage: float
    ) -> Covariances:
        """Return the attention-weighted covariances of a side (E35, E37).

        Parameters
        ----------
        side : {"key", "value"}
        centred : bool
            Whether keys are stored centred.
        windows : pair of int
            sink, recent.
        ridge, shrinkage : float
            As `producer.transform.attention_weighted.weighted_balance`.

        Raises
        ------
        SpecError
            If no sequence is longer than the windows, or values have no output weights.
        """
        # Values are stored as they are, whatever is done to keys.
        centred = centred and side == "key"
        return self._once(
            ("weighted", side, centred, windows, ridge, shrinkage),
            lambda: attention_covariances(
                lambda head: self._pairs(side, head, windows, centred=centred),
                self.plain(side, centred=centred),
                ridge,
                shrinkage,
            ),
        )

    def window_attention(self, index: int, *, centred: bool, windows: tuple[int, int]) -> WindowAttention:
        """Return the exact attention of a sequence's last queries, taken apart into windows and the rest."""
        return self._once(
            ("attention", index, centred, windows),
            lambda: WindowAttention(self.layers[index], self.stored_keys(index, centred=centred), *windows),
        )

    def _pairs(self, side: Side, head: int, windows: tuple[int, int], *, centred: bool) -> list[Pairs]:
        long = [index for index, layer in enumerate(self.layers) if layer.seq_len > sum(windows)]
        if not long:
            raise SpecError(
                f"calibration sequences of at most {sum(windows)} tokens are not allowed with attention weights: no "
                "query reads a quantized token"
            )
        return [
            key_pairs(self._reads(index, head, windows), self.stored_keys(index, centred=centred)[head])
            if side == "key"
            else value_pairs(self._reads(index, head, windows), self.layers[index], head)
            for index in long
        ]

    def _reads(self, index: int, head: int, windows: tuple[int, int]) -> HeadReads:
        key = ("reads", index, head, windows)
        found: HeadReads | None = self._found.get(key)
        if found is None:
            found = head_reads(self.layers[index], head, *windows)
            if self._kept + found.nbytes <= KEPT_BYTES:
                self._kept += found.nbytes
                self._found[key] = found
        return found

    def _once(self, key: object, compute: Callable[[], _Found]) -> _Found:
        """Return what was computed for a key, or compute it."""
        if key not in self._found:
            self._found[key] = compute()
        found: _Found = self._found[key]
        return found
