"""The script of a GPU node: its dry run, and the form of what it writes on a GPU."""

import dataclasses
import hashlib
import json
import subprocess
import sys

import pytest

from producer.backend.base import RuntimeInfo
from producer.backend.cpu import NumpyBackend
from producer.backend.cuda.compile import KERNEL_NAME, Variant
from producer.backend.cuda.pins import read_kernel_pins
from producer.cli import gpu_node as node
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PAIRED, SliceSpec
from producer.record.provenance import source_listing
from producer.record.v1 import build_record, record_text
from tests.producer.backend.cuda.kernels.conftest import cached_compile, require_shim


@pytest.fixture(scope="module")
def dry(tmp_path_factory):
    require_shim()
    folder = tmp_path_factory.mktemp("node") / "out"
    assert node.main(["--dry-run", "--output", str(folder)]) == 0
    return folder


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_a_dry_run_writes_every_file_but_the_report_of_the_tests(dry):
    assert {path.name for path in dry.iterdir()} == {
        "environment.json", "paired.json", "paired.json.trials", "pins.toml", "producer.sha256sums", "program.cubin",
        "published.json", "published.json.trials", "speed.json", "verdicts.json",
    }  # fmt: skip


def test_records_of_a_dry_run_are_delegated_and_name_no_gpu(dry):
    verdicts = (dry / "verdicts.json").read_text()
    assert verdicts.count("KVINT2_RUNTIME_DELEGATION_REQUIRED") >= 2
    assert "supported" not in verdicts.replace("unsupported", "").replace('"supported": 0', "").replace(
        '"supported":0', ""
    )
    assert str(dry) not in verdicts
    for name in ("published.json", "paired.json"):
        record = read(dry, name)
        assert record["runtime"]["name"] == "shim"
        assert record["hardware"]["gpu"] == ""
    assert read(dry, "speed.json")["gpu"] is None
    assert read(dry, "speed.json")["is_dry_run"] is True


def test_digests_are_those_of_the_files_beside_the_records(dry):
    record = read(dry, "published.json")
    digests = {
        name: hashlib.sha256((dry / name).read_bytes()).hexdigest()
        for name in ("program.cubin", "producer.sha256sums")
    }
    assert record["runtime"]["sha256"] == digests["program.cubin"]
    assert record["artifact"]["sha256"] == digests["producer.sha256sums"]
    trials = read(dry, "published.json.trials")
    assert trials["record_sha256"] == hashlib.sha256((dry / "published.json").read_bytes()).hexdigest()


def test_the_speed_table_has_its_floors(dry):
    lines = {line["kernel"]: line for line in read(dry, "speed.json")["kernels"]}
    # docs/methods/kernels.md: 548 bytes a row; K and V at 36 bytes a row each.
    assert lines["rotate_quantize_pack_float32"]["floor_bytes"] == 512 * 548
    assert lines["rotate_quantize_pack_float16, 512 rows"]["floor_bytes"] == 512 * 292
    assert lines["dequantize"]["floor_bytes"] == 512 * 548
    assert lines["attend_packed, 4 query heads a KV head"]["floor_bytes"] == 512 * 72
    assert lines["copy"]["of_copy"] == 1
    assert all(line["microseconds"] > 0 for line in lines.values())


def test_a_folder_of_a_gpu_would_be_supported_with_everything_bound(tmp_path):
    """The form alone, with made-up runtime and no GPU: the file stays in the test's own folder."""
    program = cached_compile("sm_89", Variant())
    runtime = RuntimeInfo("cuda", "12.9", "none", KERNEL_NAME, "no GPU: a test", 1, program.cubin_sha256)
    protocol = dataclasses.replace(
        PAIRED, calibration_queries=2, evaluation_queries=3, num_rotations=2, bootstrap_resamples=0
    )
    record = build_record(
        run_protocol(SliceSpec(seq_len=64, num_kv_heads=1), protocol, NumpyBackend(1)), runtime
    )
    (tmp_path / "record.json").write_text(record_text(record))
    (tmp_path / "program.cubin").write_bytes(program.cubin)
    (tmp_path / "producer.sha256sums").write_text(source_listing(), newline="\n")
    (tmp_path / "pins.toml").write_text(node.pins_text(record))
    command = [sys.executable, "-m", "kvint2eval", "adjudicate", "--format", "json"]
    arguments = ["--pins", str(tmp_path / "pins.toml"), str(tmp_path / "record.json")]

    def verdict():
        return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)

    done = verdict()
    assert done.returncode == 0, done.stdout
    assert "KVINT2_SUPPORTED" in done.stdout
    assert done.stdout.count('"bound"') == 2
    # The bound digest is one that anyone can compile again.
    assert record.runtime.sha256 in {pin.cubin_sha256 for pin in read_kernel_pins().programs}
    (tmp_path / "program.cubin").write_bytes(program.cubin + b"\0")
    done = verdict()
    assert done.returncode == 1
    assert "KVINT2_PIN_MISMATCH" in done.stdout


def test_without_a_gpu_it_ends_with_three_and_says_why(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert node.main(["--output", str(tmp_path / "out")]) == 3
    assert "CuPy" in capsys.readouterr().err


def test_an_output_that_is_a_file_is_refused(tmp_path, capsys):
    require_shim()
    (tmp_path / "file").write_text("")
    assert node.main(["--dry-run", "--output", str(tmp_path / "file")]) == 2
    assert "file" in capsys.readouterr().err
