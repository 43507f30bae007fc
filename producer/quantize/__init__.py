"""Quantizer dialects, one module each.

To add one: a module with the functions of `symmetric_absmax_clip`, and a line in `DIALECTS`.
"""

from producer.quantize import symmetric_absmax_clip

__all__ = ["DIALECTS", "symmetric_absmax_clip"]

DIALECTS = {"symmetric-absmax-clip": symmetric_absmax_clip}
