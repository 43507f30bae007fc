"""Steps 5 to 8 and 17: the observation to judge, and its runtime, CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.shared import MODELED_EVIDENCE, UNKNOWN_EVIDENCE
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["RULES", "RULES_AFTER_ALL"]

CLOCKS = ("cuda-event", "host")


def check_modeled(subject: SubjectV2) -> Finding | None:
    """Step 5: modeled figures are delegated."""
    if subject.record.evidence == "modeled":
        return finding(MODELED_EVIDENCE, "/evidence", "modeled", "observed")
    return None


def check_evidence(subject: SubjectV2) -> Finding | None:
    """Step 6: evidence that is not modeled is observed."""
    evidence = subject.record.evidence
    if evidence != "observed":
        return finding(UNKNOWN_EVIDENCE, "/evidence", evidence, "observed or modeled")
    return None


CLAIM_WITHOUT_TRIALS = Code(
    "claim-without-trials",
    Reason.INVALID_MEASUREMENT,
    "A record without measurements claims something.",
    "Leave claims empty until there are trials.",
    "measurements null beside a claim",
    v2=7,
)
TRIALS_UNKNOWN = Code(
    "trials-unknown",
    Reason.RUNTIME_DELEGATION_REQUIRED,
    "The record holds no trials: a run has to give them.",
    "Run the producer on a GPU node with this recipe.",
    '"measurements": null, as kvint2eval migrate writes it',
    v2=7,
)


def check_measured(subject: SubjectV2) -> Finding | None:
    """Step 7: a record without measurements is delegated, unless it claims something all the same."""
    record = subject.record
    if record.measurements is not None:
        return None
    if record.claims:
        return finding(CLAIM_WITHOUT_TRIALS, "/claims", record.claims, "no claim in a record without trials")
    return finding(TRIALS_UNKNOWN, "/measurements", None, "the trials of a run on CUDA")


UNKNOWN_IN_OBSERVED = Code(
    "unknown-in-observed",
    Reason.INCOMPLETE_PROVENANCE,
    "A member is null although the record has measurements.",
    "Write what was run: only a record without measurements may leave it open.",
    '"warmup": null beside trials',
    v2=8,
)


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
                return finding(UNKNOWN_IN_OBSERVED, f"/{part}/{name}", None, "what was run")
    for name in ("os", "python"):
        if getattr(record.environment, name) is None:
            return finding(UNKNOWN_IN_OBSERVED, f"/environment/{name}", None, "what it ran on")
    return None


CLOCK_UNKNOWN = Code(
    "clock-unknown",
    Reason.INVALID_MEASUREMENT,
    "protocol.clock is neither cuda-event nor host.",
    "Write the clock that took the times.",
    '"clock": "guess"',
    v2=8,
)
CLOCK_UNSYNCHRONISED = Code(
    "clock-unsynchronised",
    Reason.INVALID_MEASUREMENT,
    "The clock did not wait for the device, so it timed launches.",
    "Synchronise before the clock is read, and measure again.",
    '"synchronised": false',
    v2=8,
)
REPEATS_NONE = Code(
    "repeats-none",
    Reason.INVALID_MEASUREMENT,
    "protocol.repeats is 0, so nothing was timed.",
    "Time at least one execution a trial.",
    '"repeats": 0',
    v2=8,
)


def check_clock(subject: SubjectV2) -> Finding | None:
    """Step 8: times were taken with a known clock that waited for the device."""
    protocol = subject.record.protocol
    if protocol.clock not in CLOCKS:
        return finding(CLOCK_UNKNOWN, "/protocol/clock", protocol.clock, f"one of {', '.join(CLOCKS)}")
    if not protocol.synchronised:
        return finding(CLOCK_UNSYNCHRONISED, "/protocol/synchronised", protocol.synchronised, "true")
    if not protocol.repeats:
        return finding(REPEATS_NONE, "/protocol/repeats", protocol.repeats, "at least 1")
    return None


ENVIRONMENT_NOT_CUDA = Code(
    "environment-not-cuda",
    Reason.RUNTIME_DELEGATION_REQUIRED,
    "environment.runtime is not cuda: a sound record, but not an observation on CUDA.",
    "Run the producer on a GPU node.",
    '"runtime": "numpy"',
    v2=17,
)
ENVIRONMENT_GPU_UNKNOWN = Code(
    "environment-gpu-unknown",
    Reason.RUNTIME_DELEGATION_REQUIRED,
    "environment.gpu is null: which GPU took part is not known.",
    "Run the producer where the GPU's name can be read.",
    '"gpu": null',
    v2=17,
)


def check_runtime(subject: SubjectV2) -> Finding | None:
    """Step 17: a sound record that was not observed on CUDA is delegated."""
    environment = subject.record.environment
    if environment.runtime != "cuda":
        return finding(ENVIRONMENT_NOT_CUDA, "/environment/runtime", environment.runtime, "cuda")
    if environment.gpu is None:
        return finding(ENVIRONMENT_GPU_UNKNOWN, "/environment/gpu", None, "the name of a GPU")
    return None


RULES: tuple[RuleV2, ...] = (check_modeled, check_evidence, check_measured, check_complete, check_clock)
RULES_AFTER_ALL: tuple[RuleV2, ...] = (check_runtime,)
