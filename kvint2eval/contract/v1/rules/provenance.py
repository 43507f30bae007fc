"""Step 4: pins, runtime and envelope are complete. The finding's pointer begins with the incomplete part."""

from kvint2eval.contract.v1.rules.subject import Rule, Subject, finding
from kvint2eval.files.digest import DIGEST_LENGTH, is_digest
from kvint2eval.verdict import Finding

__all__ = ["RULES", "incomplete_part", "malformed_digest"]


def malformed_digest(subject: Subject, code: str, pointer: str, digest: str) -> Finding:
    """Finding for a digest that is not 64 lower-case hexadecimal characters, saying what is wrong with it."""
    allowed = "64 lower-case hexadecimal characters"
    if is_digest(digest.lower()):
        allowed += "; this one is in upper case"
    elif len(digest) != DIGEST_LENGTH:
        allowed += f"; this one has {len(digest)}"
    return finding(subject, code, pointer, digest, allowed)


def _check_pin(subject: Subject, role: str) -> Finding | None:
    pin = getattr(subject.record, role)
    if not pin.id:
        return finding(subject, "pin-id-empty", f"/{role}/id", pin.id, "a name")
    if not pin.version:
        return finding(subject, "pin-version-empty", f"/{role}/version", pin.version, "a version")
    if not is_digest(pin.sha256):
        return malformed_digest(subject, "pin-digest-malformed", f"/{role}/sha256", pin.sha256)
    return None


def check_pins(subject: Subject) -> Finding | None:
    """Step 4: each pin has an id, a version and a digest."""
    return (
        _check_pin(subject, "artifact")
        or _check_pin(subject, "recipe_artifact")
        or _check_pin(subject, "model")
    )


def check_runtime(subject: Subject) -> Finding | None:
    """Step 4: no member of the runtime is empty, and its digest is one."""
    runtime = subject.record.runtime
    if not (runtime.name and runtime.version and runtime.driver and runtime.kernel):
        name = next(name for name in ("name", "version", "driver", "kernel") if not getattr(runtime, name))
        return finding(subject, "runtime-member-empty", f"/runtime/{name}", "", "a text that is not empty")
    if not is_digest(runtime.sha256):
        return malformed_digest(subject, "runtime-digest-malformed", "/runtime/sha256", runtime.sha256)
    return None


def check_envelope(subject: Subject) -> Finding | None:
    """Step 4: the operating system is named, the dimensions are positive, and there is a seed."""
    hardware = subject.record.hardware
    for pointer in ("/hardware/gpu_memory_bytes",) if subject.missing else ():
        if subject.is_missing(pointer):
            return finding(subject, "envelope-member-missing", pointer, None, "bytes, 0 when unknown")
    if not hardware.os:
        return finding(subject, "envelope-os-empty", "/hardware/os", hardware.os, "a name and a version")
    if (
        hardware.context_tokens < 1
        or hardware.kv_heads < 1
        or hardware.head_dimension < 1
        or hardware.output_dimension < 1
    ):
        names = ("context_tokens", "kv_heads", "head_dimension", "output_dimension")
        name = next(name for name in names if getattr(hardware, name) < 1)
        return finding(
            subject, "envelope-dimension", f"/hardware/{name}", getattr(hardware, name), "at least 1"
        )
    if hardware.seed == 0:
        return finding(subject, "envelope-seed-zero", "/hardware/seed", 0, "at least 1")
    return None


def incomplete_part(pointer: str) -> str:
    """Part that a finding of step 4 names in the verdict's detail."""
    part = pointer.split("/")[1]
    return "hardware_or_model_envelope" if part == "hardware" else part


RULES: tuple[Rule, ...] = (check_pins, check_runtime, check_envelope)
