"""A GPU node's whole run, from tests to records: ``python -m producer.cli.gpu_node --output FOLDER``.

The steps, each of which writes below the output folder:

1. environment of the device, and the compiled program, compared with its pin;
2. the tests with marker `gpu`;
3. both protocols: record, side file;
4. pins of the records, and the adjudicator's verdict on each;
5. the speed table.

With ``--dry-run`` the same steps run on the shim, at small sizes and without step 2: its records say `shim`, which the
adjudicator delegates. Nothing of a dry run is an observation.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer.backend.cuda.backend import DeviceBackend
from producer.backend.cuda.compile import Variant
from producer.backend.cuda.speed import speed_table
from producer.cli.common import DELEGATE, ProgressBar, complain
from producer.errors import BackendUnavailableError, ProducerError
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PROTOCOLS, SliceSpec
from producer.record.provenance import source_listing
from producer.record.side_file import build_trials, trials_text
from producer.record.v1 import build_record, record_text
from producer.system.environment import collect_environment
from producer.system.files import temporary_beside, write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.backend.cuda.device import Device
    from producer.record.v1 import Record

__all__ = ["Node", "main", "pins_text"]

_ROOT = Path(__file__).resolve().parents[2]
_SIZES = ((4096, 4), (131_072, 8), (1_048_576, 8))
_DRY_SIZES = ((512, 1),)
_DRY_SLICE = SliceSpec(seq_len=64, num_kv_heads=1, output_dim=8)


class Node:
    """The steps on one device.

    Parameters
    ----------
    output : Path
        An existing folder.
    is_dry : bool
        Whether the shim stands in for the GPU.
    """

    def __init__(self, output: Path, *, is_dry: bool) -> None:
        self.output = output
        self.is_dry = is_dry
        self.backend = _dry_backend() if is_dry else _cuda_backend()
        self.device: Device = self.backend.device(128)
        self.records: list[str] = []

    def say(self, text: str) -> None:
        """Print what comes next."""
        print(f"{time.strftime('%H:%M:%S')} {'(dry run) ' if self.is_dry else ''}{text}", flush=True)

    def write_json(self, name: str, value: object) -> None:
        """Write a JSON file."""
        write_text(self.output / name, json.dumps(value, indent=2, allow_nan=False) + "\n")

    def environment(self) -> None:
        """Write environment.json, the program, and the listing whose digest is the producer's."""
        environment = {**collect_environment(1), "backend": self.backend.describe()}
        self.write_json("environment.json", environment)
        write_text(self.output / "producer.sha256sums", source_listing())
        with temporary_beside(self.output / "program.cubin") as temporary:
            temporary.write_bytes(self.device.program_bytes())

    def tests(self) -> int:
        """Run the tests with marker `gpu`; a skipped one fails."""
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests/producer/backend", "-q"]
        report = self.output / "tests.txt"
        with temporary_beside(report) as temporary, temporary.open("w", encoding="utf-8") as stream:
            done = subprocess.run(  # noqa: S603 - our own tests
                command,
                cwd=_ROOT,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
                env={**os.environ, "KVINT2EVAL_REQUIRE_GPU": "1"},
            )
        return done.returncode

    def protocol(self, name: str) -> Record:
        """Run a protocol and write its record and side file."""
        protocol = PROTOCOLS[name]
        spec = SliceSpec()
        if self.is_dry:
            spec = _DRY_SLICE
            protocol = dataclasses.replace(
                protocol, num_rotations=2, evaluation_queries=2, calibration_queries=1
            )
        result = run_protocol(spec, protocol, self.backend, progress=ProgressBar())
        record = build_record(result, self.backend.runtime)
        text = record_text(record)
        environment = {**collect_environment(1), "backend": self.backend.describe()}
        trials = build_trials(result, environment, hashlib.sha256(text.encode()).hexdigest())
        file = f"{name}.json"
        write_text(self.output / f"{file}.trials", trials_text(trials))
        write_text(self.output / file, text)
        self.records.append(file)
        self.say(f"{name}: the searches took {sum(arm.calibration_ms for arm in result.arms):.1f} ms in all")
        return record

    def adjudicate(self) -> int:
        """Write the adjudicator's verdicts; return its exit code."""
        files = [str(self.output / name) for name in self.records]
        command = [sys.executable, "-m", "kvint2eval", "adjudicate", "--format", "json"]
        done = subprocess.run(  # noqa: S603 - our own command
            [*command, "--pins", str(self.output / "pins.toml"), *files],
            capture_output=True,
            text=True,
            check=False,
        )
        # Paths as the folder's reader will see them.
        write_text(self.output / "verdicts.json", done.stdout.replace(f"{self.output}/", ""))
        if done.stderr:
            self.say(done.stderr.strip())
        return done.returncode

    def speed(self) -> None:
        """Write speed.json."""
        tables: list[Any] = []
        for tokens, heads in _DRY_SIZES if self.is_dry else _SIZES:
            self.say(f"speed: {tokens} tokens, {heads} KV heads")
            copy = _host_copy if self.is_dry else _device_copy
            tables += speed_table(self.device, tokens, heads, copy=copy, repeats=1 if self.is_dry else 20)
        matmul = None if self.is_dry else self._compared()
        self.write_json(
            "speed.json",
            {
                "gpu": self.backend.runtime.gpu or None,
                "is_dry_run": self.is_dry,
                "kernels": tables,
                "float16_matmul_attention_128k_us": matmul,
            },
        )

    def _compared(self) -> float | None:
        """Return the time of the float16 attention that the packed one is compared with, None where it cannot run."""
        try:
            return _float16_attention_us(131_072, 8, 128)
        except Exception as error:  # noqa: BLE001  # it needs cuBLAS and CUDA headers, which no record needs
            self.say(f"the float16 comparison cannot run here: {error}")
            return None


def pins_text(record: Record) -> str:
    """Return the pins file of an output folder: it binds producer and program to the files beside it."""
    return (
        "# Binds the records of this folder: the digests are those of the files beside them.\n"
        'format = "kvint2eval-pins/v1"\n\n'
        f'[[artifact]]\nrole = "artifact"\nid = "{record.artifact.id}"\nversion = "{record.artifact.version}"\n'
        f'sha256 = "{record.artifact.sha256}"\npath = "producer.sha256sums"\ntext = true\n\n'
        f'[[artifact]]\nrole = "runtime"\nid = "{record.runtime.kernel}"\nversion = "{record.runtime.version}"\n'
        f'sha256 = "{record.runtime.sha256}"\npath = "program.cubin"\n'
    )


def _cuda_backend() -> DeviceBackend:
    from producer.backend.cuda.backend import open_cuda_backend

    return open_cuda_backend()


def _dry_backend() -> DeviceBackend:
    from producer.backend.cuda.shim import ShimDevice  # only for dry runs

    return DeviceBackend(ShimDevice, decode_repeats=1)


def _host_copy(target: Any, source: Any) -> None:
    target[...] = source


def _device_copy(target: Any, source: Any) -> None:
    target.data.copy_from_device_async(source.data, source.nbytes)


def _float16_attention_us(tokens: int, heads: int, head_dim: int) -> float:
    """Return the time of decode attention over a float16 cache with CuPy's matmul, one query, in µs."""
    import cupy  # only on a GPU

    from producer.backend.cuda.cupy_device import CudaDevice
    from producer.backend.cuda.speed import measure

    device = CudaDevice(Variant())
    generator = cupy.random.default_rng(1)
    k, v = (
        generator.standard_normal((heads, tokens, head_dim), dtype=cupy.float32).astype(cupy.float16)
        for _ in "kv"
    )
    query = generator.standard_normal((heads, head_dim, 1), dtype=cupy.float32).astype(cupy.float16)

    def attend() -> None:
        scores = cupy.matmul(k, query)[..., 0].astype(cupy.float32)
        scores -= scores.max(axis=1, keepdims=True)
        weights = cupy.exp(scores)
        weights /= weights.sum(axis=1, keepdims=True)
        cupy.matmul(weights[:, None].astype(cupy.float16), v)

    return measure(device, attend)


def run(output: Path, *, is_dry: bool) -> int:
    """Do all steps; return the exit code."""
    output.mkdir(parents=True, exist_ok=True)
    node = Node(output.resolve(), is_dry=is_dry)
    node.say(f"device: {node.backend.runtime.gpu or node.backend.runtime.name}")
    node.environment()
    if not is_dry:
        node.say("tests with marker gpu")
        if node.tests() != 0:
            complain(f"the tests failed, no record is made: see {output / 'tests.txt'}")
            return 1
    for name in PROTOCOLS:
        node.say(f"protocol {name}")
        record = node.protocol(name)
    write_text(node.output / "pins.toml", pins_text(record))
    verdict = node.adjudicate()
    node.speed()
    wanted = DELEGATE if is_dry else 0
    if verdict != wanted:
        complain(f"the adjudicator ended with {verdict}, expected {wanted}: see {output / 'verdicts.json'}")
        return 1
    node.say(f"done: {output}; docs/guides/gpu-node.md says what to check in")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script and return its exit code: 0 done, 1 a step failed, 2 wrong usage, 3 no GPU that can be used."""
    parser = argparse.ArgumentParser(
        prog="python -m producer.cli.gpu_node",
        description="Tests, records and the speed table of a GPU node.",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FOLDER", help="everything is written below it"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="run on the shim, without a GPU; nothing is an observation"
    )
    arguments = parser.parse_args(argv)
    try:
        return run(arguments.output, is_dry=arguments.dry_run)
    except BackendUnavailableError as error:
        complain(str(error))
        return DELEGATE
    except (ProducerError, OSError) as error:
        complain(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(main())
