"""`kvint2eval-producer kernels`: compares, and writes only when it is told to."""

import json

import pytest

from producer.backend.cuda.compile import Variant
from producer.backend.cuda.pins import PINS_FILE, read_kernel_pins
from producer.cli import main
from tests.producer.backend.cuda.kernels.conftest import cached_compile


@pytest.fixture(autouse=True)
def one_size(monkeypatch):
    """One size is enough here, compiled once for all tests."""
    monkeypatch.setattr("producer.backend.cuda.compile.compile_program", cached_compile)
    monkeypatch.setattr("producer.backend.cuda.pins.VARIANTS", (Variant(),))


def test_the_installed_pins_hold(capsys):
    assert main(["kernels", "--architecture", "sm_89", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["source_sha256"] == read_kernel_pins().source_sha256
    assert [program["pinned"] for program in found["programs"]] == [True]


def test_what_is_not_pinned_ends_with_one_and_writes_nothing(tmp_path, capsys):
    pins = tmp_path / "pins.toml"
    text = PINS_FILE.read_text().replace(cached_compile("sm_89", Variant()).cubin_sha256, "0" * 64)
    pins.write_text(text)
    assert main(["kernels", "--architecture", "sm_89", "--pins", str(pins)]) == 1
    assert "sm_89 by NVRTC 12.9, head_dim 128, group_size 128: NOT PINNED" in capsys.readouterr().out
    assert pins.read_text() == text


@pytest.mark.parametrize("exists", [False, True])
def test_update_writes_pins_that_hold(tmp_path, capsys, exists):
    pins = tmp_path / "pins.toml"
    if exists:
        pins.write_text(
            PINS_FILE.read_text().replace(cached_compile("sm_89", Variant()).cubin_sha256, "0" * 64)
        )
    assert main(["kernels", "--architecture", "sm_89", "--pins", str(pins), "--update"]) == 0
    assert ": updated" in capsys.readouterr().out
    assert main(["kernels", "--architecture", "sm_89", "--pins", str(pins)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["pins.toml"]
    if exists:
        assert read_kernel_pins(pins) == read_kernel_pins()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--architecture", "ada"], "architecture 'ada' is not allowed: sm_ and a number"),
        (["--pins", "/nowhere/pins.toml"], "/nowhere/pins.toml"),
        (["--pins", "/nowhere/pins.toml", "--update"], "there is no folder /nowhere"),
    ],
)
def test_wrong_arguments_end_with_two(arguments, message, capsys):
    assert main(["kernels", *arguments]) == 2
    assert message in capsys.readouterr().err
