"""Pins of the compiled kernels: the bytes that each source, compiler, architecture and size must give.

The file is TOML::

    format = "kvint2eval-kernel-pins/v1"
    kernel = "kvint2eval-int2-attention-v1"
    source_sha256 = "…"            # of the program's text, see producer.backend.cuda.compile

    [[program]]
    compiler = "12.9"              # what NVRTC says of itself
    architecture = "sm_89"
    head_dim = 128
    group_size = 128
    cubin_sha256 = "…"

Anyone can check it without a GPU: `kvint2eval-producer kernels` compiles and compares.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer.backend.cuda.compile import KERNEL_NAME, CompiledProgram, Variant, compile_program
from producer.backend.cuda.errors import UnpinnedKernelError
from producer.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ARCHITECTURES",
    "PINS_FILE",
    "VARIANTS",
    "KernelPins",
    "ProgramPin",
    "pins_text",
    "read_kernel_pins",
]

PINS_FILE = Path(__file__).parent / "pins.toml"
FORMAT = "kvint2eval-kernel-pins/v1"
#: What is pinned: L4 and H100 or H200, at the sizes that contract v1 can support.
ARCHITECTURES = ("sm_89", "sm_90")
VARIANTS = (Variant(128, 128), Variant(256, 128))


@dataclass(frozen=True, slots=True, order=True)
class ProgramPin:
    """One compiled program."""

    compiler: str
    architecture: str
    head_dim: int
    group_size: int
    cubin_sha256: str

    @classmethod
    def of(cls, program: CompiledProgram, variant: Variant) -> ProgramPin:
        """Return the pin that a program would have."""
        return cls(
            program.compiler,
            program.architecture,
            variant.head_dim,
            variant.group_size,
            program.cubin_sha256,
        )

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What the digest depends on, beside the source."""
        return (self.compiler, self.architecture, self.head_dim, self.group_size)

    def __str__(self) -> str:
        return f"{self.architecture} by NVRTC {self.compiler}, head_dim {self.head_dim}, group_size {self.group_size}"


@dataclass(frozen=True, slots=True)
class KernelPins:
    """A pins file.

    Attributes
    ----------
    source_sha256 : str
        Digest of the text that all its programs were compiled from.
    programs : tuple of ProgramPin
        In order.
    """

    source_sha256: str
    programs: tuple[ProgramPin, ...]

    def require(self, program: CompiledProgram, variant: Variant) -> None:
        """Raise unless a program is one of these.

        Raises
        ------
        UnpinnedKernelError
            With what was found, what is pinned, and what to do.
        """
        found = ProgramPin.of(program, variant)
        if found in self.programs and program.source_sha256 == self.source_sha256:
            return
        update = (
            "a new pin is made by `kvint2eval-producer kernels --update` in a checkout, and has to be reviewed "
            "(docs/guides/gpu-node.md)"
        )
        if program.source_sha256 != self.source_sha256:
            raise UnpinnedKernelError(
                f"the kernels' source has SHA-256 {program.source_sha256}, pinned is {self.source_sha256}: {update}"
            )
        pinned = next((pin for pin in self.programs if pin.key == found.key), None)
        if pinned is not None:
            raise UnpinnedKernelError(
                f"the program for {found} has SHA-256 {found.cubin_sha256}, pinned is {pinned.cubin_sha256}: another "
                f"build of the compiler, or a changed one; {update}"
            )
        raise UnpinnedKernelError(
            f"no program for {found} is pinned, allowed are: {'; '.join(map(str, self.programs))}. "
            f"{update[0].upper()}{update[1:]}"
        )

    def updated(self, source_sha256: str, programs: Iterable[ProgramPin]) -> KernelPins:
        """Return these pins with some replaced or added; pins of another source are dropped."""
        kept = {pin.key: pin for pin in self.programs} if source_sha256 == self.source_sha256 else {}
        kept.update({pin.key: pin for pin in programs})
        return KernelPins(source_sha256, tuple(sorted(kept.values())))


def compile_pinned(architecture: str, variant: Variant, pins: KernelPins) -> CompiledProgram:
    """Return the program of an architecture, which is one of the pins.

    Parameters
    ----------
    architecture : str
    variant : Variant
    pins : KernelPins

    Raises
    ------
    UnpinnedKernelError
        If it is not pinned.
    CompilerMissingError, KernelCompileError
        If it cannot be compiled.

    Notes
    -----
    A program that differs is compiled once more before it is refused: one in some hundred compilations of the same
    text was seen to give other bytes (docs/methods/kernels.md, "Limits").
    """
    program = compile_program(architecture, variant)
    try:
        pins.require(program, variant)
    except UnpinnedKernelError:
        program = compile_program(architecture, variant)
        pins.require(program, variant)
    return program


def read_kernel_pins(path: Path = PINS_FILE) -> KernelPins:
    """Return the pins of a file.

    Raises
    ------
    SpecError
        If it is not a pins file; the message says what was found, what is allowed, and where.
    OSError
        If it cannot be read.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"pins file {path}: not TOML: {error}") from error
    if (table.get("format"), table.get("kernel")) != (FORMAT, KERNEL_NAME):
        raise SpecError(
            f"pins file {path}: found format {table.get('format')!r} of kernel {table.get('kernel')!r}, allowed: "
            f"{FORMAT!r} of {KERNEL_NAME!r}"
        )
    try:
        programs: list[dict[str, Any]] = table.get("program", [])
        return KernelPins(str(table["source_sha256"]), tuple(ProgramPin(**each) for each in programs))
    except (KeyError, TypeError) as error:
        raise SpecError(f"pins file {path}: a member is missing or unknown: {error}") from error


def pins_text(pins: KernelPins) -> str:
    """Return the text of a pins file."""
    head = (
        "# Digests of the kernels and of what NVRTC makes of them. Made by `kvint2eval-producer kernels --update`,\n"
        "# compared by the tests; docs/guides/gpu-node.md says when they may change.\n"
        f'format = "{FORMAT}"\nkernel = "{KERNEL_NAME}"\nsource_sha256 = "{pins.source_sha256}"\n'
    )
    tables = (
        f'\n[[program]]\ncompiler = "{pin.compiler}"\narchitecture = "{pin.architecture}"\nhead_dim = {pin.head_dim}\n'
        f'group_size = {pin.group_size}\ncubin_sha256 = "{pin.cubin_sha256}"\n'
        for pin in pins.programs
    )
    return head + "".join(tables)
