"""`kvint2eval-producer kernels`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from producer.cli.common import add_command

if TYPE_CHECKING:
    import argparse

    from producer.backend.cuda.pins import ProgramPin
    from producer.cli.common import Subcommands

__all__ = ["add"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "kernels",
        "Compile the GPU kernels, which needs no GPU, and compare them with their pins. Ends with 1 when a program "
        "is not pinned or differs.",
        run,
    )
    command.add_argument(
        "--architecture",
        action="append",
        metavar="SM",
        help="compile for this architecture, for example sm_90; may be repeated (default: the pinned ones)",
    )
    command.add_argument(
        "--pins", type=Path, metavar="FILE", help="another pins file than the one that is installed"
    )
    command.add_argument("--update", action="store_true", help="write what differs to the pins file")
    command.add_argument(
        "--format", default="text", choices=("text", "json"), help="form of the output (default: text)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Compile the kernels and compare, or update, their pins."""
    from producer.backend.cuda.compile import compile_program
    from producer.backend.cuda.pins import (
        ARCHITECTURES,
        PINS_FILE,
        VARIANTS,
        KernelPins,
        ProgramPin,
        pins_text,
        read_kernel_pins,
    )
    from producer.system.files import require_writable, write_text

    path = arguments.pins or PINS_FILE
    if arguments.update:
        require_writable(path)
    pins = read_kernel_pins(path) if path.exists() or not arguments.update else KernelPins("", ())
    found: list[ProgramPin] = []
    source = ""
    for architecture in arguments.architecture or ARCHITECTURES:
        for variant in VARIANTS:
            program = compile_program(architecture, variant)
            source = program.source_sha256
            found.append(ProgramPin.of(program, variant))
    pinned = [source == pins.source_sha256 and pin in pins.programs for pin in found]
    if arguments.update and not all(pinned):
        write_text(path, pins_text(pins.updated(source, found)))
    _print(source, found, pinned, arguments)
    return 0 if all(pinned) or arguments.update else 1


def _print(source: str, found: list[ProgramPin], pinned: list[bool], arguments: argparse.Namespace) -> None:
    if arguments.format == "json":
        programs = [
            {
                "compiler": pin.compiler,
                "architecture": pin.architecture,
                "head_dim": pin.head_dim,
                "group_size": pin.group_size,
                "cubin_sha256": pin.cubin_sha256,
                "pinned": is_pinned,
            }
            for pin, is_pinned in zip(found, pinned, strict=True)
        ]
        print(json.dumps({"source_sha256": source, "programs": programs}))
        return
    print(f"source {source}")
    new = "updated" if arguments.update else "NOT PINNED"
    for pin, is_pinned in zip(found, pinned, strict=True):
        print(f"{pin.cubin_sha256}  {pin}: {'pinned' if is_pinned else new}")
