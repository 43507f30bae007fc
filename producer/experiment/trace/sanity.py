"""Sanity of a comparison: what its figures cannot discriminate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["non_discriminating"]

# An output of zeros has this relative error.
_ZEROS = 1.0
# Relative error of rounding to float16: below it a cache is as good as stored.
_EXACT = 2.0**-22
# A perplexity so near to the one without quantization is that one.
_SAME_PERPLEXITY = 1e-4


def non_discriminating(content: dict[str, Any]) -> list[str]:
    """Return what a comparison says nothing about, because every scheme is at the floor or at the ceiling.

    Parameters
    ----------
    content : dict
        JSON of a comparison.

    Raises
    ------
    FileFormatError
        If members are missing or of another type.

    Notes
    -----
    At the floor is a scheme that is no better than an output of zeros, a model whose perplexity is that of guessing or
    worse, or one whose predictions are never, but for one standard error, those without the scheme; at the ceiling an
    error of rounding alone, the same perplexity, or predictions that are always the same but for one standard error.
    """
    try:
        schemes = content["schemes"]
        found = [
            _errors([float(scheme["summary"]["relative_error"]) for scheme in schemes]),
            *_runs([run for scheme in schemes for run in scheme["runs"]], content["model"]),
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"not a comparison: {error!r}") from error
    return [message for message in found if message is not None]


def _errors(errors: Sequence[float]) -> str | None:
    if min(errors) >= _ZEROS:
        return f"error discriminates nothing: no scheme is better than an output of zeros (least: {min(errors):.3g})"
    if max(errors) <= _EXACT:
        return f"error discriminates nothing: every scheme's is rounding alone (largest: {max(errors):.3g})"
    return None


def _runs(runs: list[dict[str, Any]], model: dict[str, Any]) -> list[str | None]:
    if not runs:
        return []
    found: list[str | None] = []
    words = int(model.get("vocab_size", 0))
    least = min(float(run["perplexity"]) for run in runs)
    if 0 < words <= least:
        found.append(
            f"perplexity discriminates nothing: with every scheme it is that of guessing among {words} words, or worse "
            f"(least: {least:.4g})"
        )
    apart = max(abs(float(run["perplexity"]) / float(run["reference_perplexity"]) - 1.0) for run in runs)
    if apart <= _SAME_PERPLEXITY:
        found.append(
            f"perplexity discriminates nothing: every scheme's is that of 16 bits (largest difference: {apart:.2g})"
        )
    # A share of k in n is within one standard error of 0 or of n while k, or n - k, is at most 1.
    agreements = [(run["top1_agreement"], run["tokens"] - run["first_token"]) for run in runs]
    if all(share * count <= 1 for share, count in agreements):
        found.append(
            "top-1 agreement discriminates nothing: it is 0 with every scheme, within one standard error"
        )
    if all((1 - share) * count <= 1 + 1e-9 for share, count in agreements):
        found.append(
            "top-1 agreement discriminates nothing: it is 100 % with every scheme, within one standard error"
        )
    return found
