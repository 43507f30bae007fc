"""Steps 5 to 7: the observation to judge. Two of these findings delegate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.shared import MODELED_EVIDENCE, UNKNOWN_EVIDENCE
from kvint2eval.contract.v1.rules.subject import Rule, Subject, finding

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["RULES"]


def check_modeled(subject: Subject) -> Finding | None:
    """Step 5: modeled figures are delegated."""
    if subject.record.evidence == "modeled":
        return finding(subject, MODELED_EVIDENCE, "/evidence", "modeled", "observed")
    return None


def check_evidence(subject: Subject) -> Finding | None:
    """Step 6: evidence that is not modeled is observed."""
    evidence = subject.record.evidence
    if evidence != "observed":
        return finding(subject, UNKNOWN_EVIDENCE, "/evidence", evidence, "observed or modeled")
    return None


RUNTIME_NOT_CUDA = Code(
    "runtime-not-cuda",
    Reason.RUNTIME_DELEGATION_REQUIRED,
    "runtime.name is not cuda: the figures come from another runtime.",
    "Run the producer on a GPU node.",
    '"name": "numpy" in runtime',
    v1=7,
)
GPU_UNNAMED = Code(
    "gpu-unnamed",
    Reason.RUNTIME_DELEGATION_REQUIRED,
    "hardware.gpu is empty: no GPU took part.",
    "Run the producer on a GPU node.",
    '"gpu": ""',
    v1=7,
)


def check_runtime(subject: Subject) -> Finding | None:
    """Step 7: an observation without CUDA or without a GPU is delegated."""
    record = subject.record
    if record.runtime.name != "cuda":
        return finding(subject, RUNTIME_NOT_CUDA, "/runtime/name", record.runtime.name, "cuda")
    if not record.hardware.gpu:
        return finding(subject, GPU_UNNAMED, "/hardware/gpu", record.hardware.gpu, "the name of a GPU")
    return None


RULES: tuple[Rule, ...] = (check_modeled, check_evidence, check_runtime)
