"""OptR: corrections of rotations that are learned by the error of the attention output.

Needs torch, of the extra `trace`; it is imported when a correction is learned, not with this package.
"""

from __future__ import annotations

from producer.scheme.optr.learn import OptrResult, StageLosses, learn_optr
from producer.scheme.optr.options import PRESETS, OptrOptions

__all__ = ["PRESETS", "OptrOptions", "OptrResult", "StageLosses", "learn_optr"]
