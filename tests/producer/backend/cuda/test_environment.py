import subprocess

import pytest

from producer.backend.cuda import environment
from producer.backend.cuda.environment import (
    CLOCKS,
    cuda_version,
    parse_clocks,
    parse_driver_version,
    read_clocks,
)


@pytest.mark.parametrize(("number", "text"), [(12090, "12.9"), (13000, "13.0"), (11040, "11.4"), (0, "0.0")])
def test_cuda_versions(number, text):
    assert cuda_version(number) == text


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC version: 12",
            "535.183.01",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build  (builder)\n",
            "580.159.03",
        ),
        ("", None),
        ("NVRM version: unknown\n", None),
    ],
)
def test_driver_versions(text, version):
    assert parse_driver_version(text) == version


def test_unknown_clocks_are_none():
    found = parse_clocks("2040, 6251, 2040, [N/A], [Not Supported]\n")
    assert found == {
        "sm_clock_mhz": 2040.0,
        "memory_clock_mhz": 6251.0,
        "max_sm_clock_mhz": 2040.0,
        "max_memory_clock_mhz": None,
        "power_limit_w": None,
    }


@pytest.mark.parametrize("text", ["", "No devices were found", "1, 2, 3"])
def test_other_answers_are_none(text):
    assert parse_clocks(text) == dict.fromkeys(CLOCKS)


@pytest.mark.parametrize("fault", [subprocess.TimeoutExpired("nvidia-smi", 10), OSError("no")])
def test_a_program_that_fails_is_none(monkeypatch, fault):
    def fail(*_arguments, **_options):
        raise fault

    monkeypatch.setattr(environment.shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(environment.subprocess, "run", fail)
    assert read_clocks("0000:00:00.0") == dict.fromkeys(CLOCKS)
