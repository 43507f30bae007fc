"""Step 4: pins, runtime and envelope are complete. The finding's pointer begins with the incomplete part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.v1.rules.subject import Rule, Subject, finding
from kvint2eval.files.digest import DIGEST_LENGTH, is_digest

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["RULES", "incomplete_part", "malformed_digest"]


def malformed_digest(subject: Subject, code: Code, pointer: str, digest: str) -> Finding:
    """Finding for a digest that is not 64 lower-case hexadecimal characters, saying what is wrong with it."""
    allowed = "64 lower-case hexadecimal characters"
    if is_digest(digest.lower()):
        allowed += "; this one is in upper case"
    elif len(digest) != DIGEST_LENGTH:
        allowed += f"; this one has {len(digest)}"
    return finding(subject, code, pointer, digest, allowed)


PIN_ID_EMPTY = Code(
    "pin-id-empty",
    Reason.INCOMPLETE_PROVENANCE,
    "A pin has no id.",
    "Name the artifact.",
    '"id": "" in artifact',
    v1=4,
)
PIN_VERSION_EMPTY = Code(
    "pin-version-empty",
    Reason.INCOMPLETE_PROVENANCE,
    "A pin has no version.",
    "Write the artifact's version.",
    '"version": "" in model',
    v1=4,
)
PIN_DIGEST_MALFORMED = Code(
    "pin-digest-malformed",
    Reason.INCOMPLETE_PROVENANCE,
    "A pin's sha256 is not 64 lower-case hexadecimal characters.",
    "kvint2eval digest PATH prints the digest in this form.",
    "a pin's digest in upper case, or with a newline at its end",
    v1=4,
)


def _check_pin(subject: Subject, role: str) -> Finding | None:
    pin = getattr(subject.record, role)
    if not pin.id:
        return finding(subject, PIN_ID_EMPTY, f"/{role}/id", pin.id, "a name")
    if not pin.version:
        return finding(subject, PIN_VERSION_EMPTY, f"/{role}/version", pin.version, "a version")
    if not is_digest(pin.sha256):
        return malformed_digest(subject, PIN_DIGEST_MALFORMED, f"/{role}/sha256", pin.sha256)
    return None


def check_pins(subject: Subject) -> Finding | None:
    """Step 4: each pin has an id, a version and a digest."""
    return (
        _check_pin(subject, "artifact")
        or _check_pin(subject, "recipe_artifact")
        or _check_pin(subject, "model")
    )


RUNTIME_MEMBER_EMPTY = Code(
    "runtime-member-empty",
    Reason.INCOMPLETE_PROVENANCE,
    "A member of runtime is empty.",
    "Write name, version, driver and kernel as the run saw them.",
    '"driver": "" in runtime',
    v1=4,
)
RUNTIME_DIGEST_MALFORMED = Code(
    "runtime-digest-malformed",
    Reason.INCOMPLETE_PROVENANCE,
    "runtime.sha256 is not 64 lower-case hexadecimal characters.",
    "Write the SHA-256 of the compiled program: kvint2eval digest PATH.",
    "63 characters in runtime.sha256",
    v1=4,
)


def check_runtime(subject: Subject) -> Finding | None:
    """Step 4: no member of the runtime is empty, and its digest is one."""
    runtime = subject.record.runtime
    if not (runtime.name and runtime.version and runtime.driver and runtime.kernel):
        name = next(name for name in ("name", "version", "driver", "kernel") if not getattr(runtime, name))
        return finding(subject, RUNTIME_MEMBER_EMPTY, f"/runtime/{name}", "", "a text that is not empty")
    if not is_digest(runtime.sha256):
        return malformed_digest(subject, RUNTIME_DIGEST_MALFORMED, "/runtime/sha256", runtime.sha256)
    return None


ENVELOPE_MEMBER_MISSING = Code(
    "envelope-member-missing",
    Reason.INCOMPLETE_PROVENANCE,
    "A member of hardware is missing.",
    "Write it; an unknown memory size is 0.",
    "hardware without gpu_memory_bytes",
    v1=4,
)
ENVELOPE_OS_EMPTY = Code(
    "envelope-os-empty",
    Reason.INCOMPLETE_PROVENANCE,
    "hardware.os is empty.",
    "Write the operating system with its version.",
    '"os": ""',
    v1=4,
)
ENVELOPE_DIMENSION = Code(
    "envelope-dimension",
    Reason.INCOMPLETE_PROVENANCE,
    "A dimension of the evaluated slice is not positive.",
    "Write the size that was run.",
    '"kv_heads": 0',
    v1=4,
)
ENVELOPE_SEED_ZERO = Code(
    "envelope-seed-zero",
    Reason.INCOMPLETE_PROVENANCE,
    "hardware.seed is 0, which counts as no seed.",
    "Write the seed that was used, or run with one.",
    '"seed": 0',
    v1=4,
)


def check_envelope(subject: Subject) -> Finding | None:
    """Step 4: the operating system is named, the dimensions are positive, and there is a seed."""
    hardware = subject.record.hardware
    for pointer in ("/hardware/gpu_memory_bytes",) if subject.missing else ():
        if subject.is_missing(pointer):
            return finding(subject, ENVELOPE_MEMBER_MISSING, pointer, None, "bytes, 0 when unknown")
    if not hardware.os:
        return finding(subject, ENVELOPE_OS_EMPTY, "/hardware/os", hardware.os, "a name and a version")
    if (
        hardware.context_tokens < 1
        or hardware.kv_heads < 1
        or hardware.head_dimension < 1
        or hardware.output_dimension < 1
    ):
        names = ("context_tokens", "kv_heads", "head_dimension", "output_dimension")
        name = next(name for name in names if getattr(hardware, name) < 1)
        return finding(
            subject, ENVELOPE_DIMENSION, f"/hardware/{name}", getattr(hardware, name), "at least 1"
        )
    if hardware.seed == 0:
        return finding(subject, ENVELOPE_SEED_ZERO, "/hardware/seed", 0, "at least 1")
    return None


def incomplete_part(pointer: str) -> str:
    """Part that a finding of step 4 names in the verdict's detail."""
    part = pointer.split("/")[1]
    return "hardware_or_model_envelope" if part == "hardware" else part


RULES: tuple[Rule, ...] = (check_pins, check_runtime, check_envelope)
