"""Steps 5 to 7: the observation to judge. Two of these findings delegate."""

from kvint2eval.contract.v1.rules.subject import Rule, Subject, finding
from kvint2eval.verdict import Finding

__all__ = ["RULES"]


def check_modeled(subject: Subject) -> Finding | None:
    """Step 5: modeled figures are delegated."""
    if subject.record.evidence == "modeled":
        return finding(subject, "modeled-evidence", "/evidence", "modeled", "observed")
    return None


def check_evidence(subject: Subject) -> Finding | None:
    """Step 6: evidence that is not modeled is observed."""
    evidence = subject.record.evidence
    if evidence != "observed":
        return finding(subject, "unknown-evidence", "/evidence", evidence, "observed or modeled")
    return None


def check_runtime(subject: Subject) -> Finding | None:
    """Step 7: an observation without CUDA or without a GPU is delegated."""
    record = subject.record
    if record.runtime.name != "cuda":
        return finding(subject, "runtime-not-cuda", "/runtime/name", record.runtime.name, "cuda")
    if not record.hardware.gpu:
        return finding(subject, "gpu-unnamed", "/hardware/gpu", record.hardware.gpu, "the name of a GPU")
    return None


RULES: tuple[Rule, ...] = (check_modeled, check_evidence, check_runtime)
