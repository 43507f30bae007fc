"""Steps 5 to 8 and 17: the observation to judge, and its runtime, CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["RULES", "RULES_AFTER_ALL"]

CLOCKS = ("cuda-event", "host")


def check_modeled(subject: SubjectV2) -> Finding | None:
    """Step 5: modeled figures are delegated."""
    if subject.record.evidence == "modeled":
        return finding("modeled-evidence", "/evidence", "modeled", "observed")
    return None


def check_evidence(subject: SubjectV2) -> Finding | None:
    """Step 6: evidence that is not modeled is observed."""
    evidence = subject.record.evidence
    if evidence != "observed":
        return finding("unknown-evidence", "/evidence", evidence, "observed or modeled")
    return None


def check_measured(subject: SubjectV2) -> Finding | None:
    """Step 7: a record without measurements is delegated, unless it claims something all the same."""
    record = subject.record
    if record.measurements is not None:
        return None
    if record.claims:
        return finding(
            "claim-without-trials", "/claims", record.claims, "no claim in a record without trials"
        )
    return finding("trials-unknown", "/measurements", None, "the trials of a run on CUDA")


def check_complete(subject: SubjectV2) -> Finding | None:
    """Step 8: in a record with measurements nothing of recipe, workload and protocol is unknown."""
    record = subject.record
    for part, values in (
        ("recipe", record.recipe),
        ("workload", record.workload),
        ("protocol", record.protocol),
    ):
        for name in values.__struct_fields__:
            if getattr(values, name) is None and name not in ("synthetic", "trace"):
                return finding("unknown-in-observed", f"/{part}/{name}", None, "what was run")
    if record.workload.synthetic is None and record.workload.trace is None:
        return finding("workload-origin", "/workload/synthetic", None, "a synthetic slice or a trace")
    for name in ("os", "python"):
        if getattr(record.environment, name) is None:
            return finding("unknown-in-observed", f"/environment/{name}", None, "what it ran on")
    return None


def check_clock(subject: SubjectV2) -> Finding | None:
    """Step 8: times were taken with a known clock that waited for the device."""
    protocol = subject.record.protocol
    if protocol.clock not in CLOCKS:
        return finding("clock-unknown", "/protocol/clock", protocol.clock, f"one of {', '.join(CLOCKS)}")
    if not protocol.synchronised:
        return finding("clock-unsynchronised", "/protocol/synchronised", protocol.synchronised, "true")
    if not protocol.repeats:
        return finding("repeats-none", "/protocol/repeats", protocol.repeats, "at least 1")
    return None


def check_runtime(subject: SubjectV2) -> Finding | None:
    """Step 17: a sound record that was not observed on CUDA is delegated."""
    environment = subject.record.environment
    if environment.runtime != "cuda":
        return finding("environment-not-cuda", "/environment/runtime", environment.runtime, "cuda")
    if environment.gpu is None:
        return finding("environment-gpu-unknown", "/environment/gpu", None, "the name of a GPU")
    return None


RULES: tuple[RuleV2, ...] = (check_modeled, check_evidence, check_measured, check_complete, check_clock)
RULES_AFTER_ALL: tuple[RuleV2, ...] = (check_runtime,)
