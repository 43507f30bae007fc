"""NVRTC compiles the kernels on any machine; nothing here may be skipped."""

import ctypes
import dataclasses
import re

import numpy as np
import pytest

from producer.backend.cuda import compile as gpu_compile
from producer.backend.cuda import launch
from producer.backend.cuda.compile import (
    KERNEL_FOLDER,
    Variant,
    compile_program,
    program_options,
    program_source,
)
from producer.backend.cuda.errors import CompilerMissingError, KernelCompileError, UnpinnedKernelError
from producer.backend.cuda.pins import (
    ARCHITECTURES,
    VARIANTS,
    KernelPins,
    ProgramPin,
    compile_pinned,
    pins_text,
    read_kernel_pins,
)
from producer.errors import SpecError
from tests.producer.backend.cuda.kernels.conftest import cached_compile

KERNELS = {
    "attend_float_1", "attend_float_2", "attend_float_4", "attend_packed_1", "attend_packed_2", "attend_packed_4",
    "dequantize", "merge_partials", "project", "rotate", "rotate_quantize_pack_bfloat16",
    "rotate_quantize_pack_dense_bfloat16", "rotate_quantize_pack_dense_float16", "rotate_quantize_pack_dense_float32",
    "rotate_quantize_pack_float16", "rotate_quantize_pack_float32", "squared_error", "unpack",
}  # fmt: skip
SMALL = 'extern "C" __global__ void scale(float* x, float s) { x[0] = x[0] * s + 1.0f; }'


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_programs_are_the_pinned_ones(architecture):
    program = compile_pinned(architecture, Variant(), read_kernel_pins())
    assert program.compiler == "12.9"
    assert program.log == ""
    names = set(re.findall(rb"\.text\.(\w+)", program.cubin))
    assert {name.decode() for name in names} == KERNELS


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS[1:])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_programs_of_other_sizes_are_the_pinned_ones(architecture, variant):
    compile_pinned(architecture, variant, read_kernel_pins())


def test_pins_cover_both_compilers_and_are_written_as_they_are():
    pins = read_kernel_pins()
    keys = {pin.key for pin in pins.programs}
    assert keys == {
        (compiler, architecture, variant.head_dim, variant.group_size)
        for compiler in ("12.9", "13.0")
        for architecture in ARCHITECTURES
        for variant in VARIANTS
    }
    path = KERNEL_FOLDER.parent / "pins.toml"
    assert pins_text(pins) == path.read_text(encoding="utf-8")


def ptx(source, options):
    """What NVRTC makes of a text before the assembler."""
    library = gpu_compile._nvrtc()._library
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"x.cu", 0, None, None) == 0
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    assert library.nvrtcCompileProgram(program, len(options), given) == 0
    size = ctypes.c_size_t()
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, text)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return text.value.decode()


def test_nothing_is_flushed_and_nothing_fused_unasked():
    options = program_options(Variant(), "sm_90")
    text = ptx(SMALL, options)
    assert "mul.rn.f32" in text.replace("mul.f32", "mul.rn.f32")
    assert "fma" not in text
    assert "ftz" not in text
    # The same test sees both when they are asked for, so it can fail.
    assert "fma.rn.ftz" in ptx(SMALL, (*options, "--fmad=true", "--ftz=true"))


def test_the_whole_program_keeps_subnormals():
    text = ptx(program_source(), program_options(Variant(), "sm_90"))
    # The one exception is inside NVIDIA's expf: 2^x of a reduced argument, whose result is far from subnormal.
    text = text.replace("ex2.approx.ftz.f32", "")
    assert "ftz" not in text
    assert "approx" not in text
    assert not re.search(r"\b(atom|red)\.", text)


def test_the_last_of_two_options_wins_so_none_may_follow_ours():
    """Why CuPy's own compiler call, which appends -ftz=true, is not used."""
    options = program_options(Variant(), "sm_90")
    assert "ftz" in ptx(SMALL, (*options, "-ftz=true"))


def test_no_kernel_spills_registers():
    options = (*program_options(Variant(), "sm_89"), "--ptxas-options=-v")
    _, log = gpu_compile._nvrtc().compile(program_source(), options)
    spills = dict(re.findall(r"properties for (\w+)\n.*?(\d+) bytes spill stores", log))
    assert set(spills) == KERNELS
    assert set(spills.values()) == {"0"}


def test_source_is_every_file_once_and_nothing_else():
    source = program_source()
    for path in KERNEL_FOLDER.iterdir():
        assert source.count(f"// ==== {path.name}\n") == 1
    assert "#include" not in source
    assert "\r" not in source


def test_digest_does_not_depend_on_line_ends(tmp_path):
    for path in KERNEL_FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert program_source(tmp_path) == program_source()


def test_kernel_files_hold_device_code_only():
    for path in KERNEL_FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        assert "__host__" not in text, path.name
        assert "<<<" not in text, path.name
        assert not re.search(r"#include\s*<", text), path.name
        assert "atomic" not in text, path.name
        if path.suffix == ".cu":
            for heading in ("Equation:", "CPU twin:", "Grid:", "Block:", "In:", "Out:"):
                assert f"// {heading}" in text, f"{path.name}: {heading}"


def test_a_changed_source_is_not_pinned():
    program = compile_program("sm_90", source=SMALL)
    with pytest.raises(UnpinnedKernelError, match=r"the kernels' source has SHA-256 [0-9a-f]{64}, pinned is"):
        read_kernel_pins().require(program, Variant())


def test_an_architecture_that_was_never_pinned_is_named():
    program = compile_program("sm_80", source=SMALL)
    pins = KernelPins(program.source_sha256, read_kernel_pins().programs)
    with pytest.raises(UnpinnedKernelError, match=r"no program for sm_80 by NVRTC 12\.9") as caught:
        pins.require(program, Variant())
    assert "kernels --update" in str(caught.value)
    assert "sm_89 by NVRTC 12.9" in str(caught.value)


def test_another_digest_for_the_same_compiler_is_named():
    program = compile_program("sm_90", source=SMALL)
    pin = ProgramPin("12.9", "sm_90", 128, 128, "0" * 64)
    with pytest.raises(UnpinnedKernelError, match=f"pinned is {'0' * 64}: another build of the compiler"):
        KernelPins(program.source_sha256, (pin,)).require(program, Variant())


def test_a_program_that_differs_is_compiled_once_more(monkeypatch):
    good = cached_compile("sm_90", Variant())
    bad = dataclasses.replace(good, cubin_sha256="0" * 64)
    answers = [bad, good]
    monkeypatch.setattr("producer.backend.cuda.pins.compile_program", lambda *_: answers.pop(0))
    assert compile_pinned("sm_90", Variant(), read_kernel_pins()) is good
    answers = [bad, bad]
    with pytest.raises(UnpinnedKernelError, match="another build of the compiler"):
        compile_pinned("sm_90", Variant(), read_kernel_pins())
    assert answers == []


def test_pins_of_another_source_are_dropped_when_updated():
    old = KernelPins(
        "a", (ProgramPin("12.9", "sm_89", 128, 128, "1"), ProgramPin("12.9", "sm_90", 128, 128, "2"))
    )
    new = ProgramPin("12.9", "sm_90", 128, 128, "3")
    assert old.updated("a", [new]).programs == (old.programs[0], new)
    assert old.updated("b", [new]).programs == (new,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not TOML"),
        ('format = "x"', "found format 'x' of kernel None, allowed"),
        (
            'format = "kvint2eval-kernel-pins/v1"\nkernel = "kvint2eval-int2-attention-v1"',
            "missing or unknown",
        ),
    ],
)
def test_a_file_that_is_no_pins_file_is_refused(tmp_path, text, message):
    path = tmp_path / "pins.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        read_kernel_pins(path)


def test_a_kernel_that_does_not_compile_carries_the_log():
    with pytest.raises(
        KernelCompileError, match=r"NVRTC 12.9 does not compile .*: .*error.*undeclared"
    ) as caught:
        compile_program("sm_90", source="__global__ void f() { undeclared = 1; }")
    assert "undeclared" in caught.value.log


def test_a_missing_header_is_named(tmp_path):
    (tmp_path / "a.cu").write_text('#include "absent.cuh"\n')
    with pytest.raises(KernelCompileError, match=r"absent\.cuh, which does not exist"):
        program_source(tmp_path)


@pytest.mark.parametrize("architecture", ["sm_1", "compute_90", "sm_90 --fmad=true", "sm_90\n"])
def test_an_architecture_is_spelled_in_full(architecture):
    with pytest.raises(SpecError, match="is not allowed: sm_ and a number"):
        program_options(Variant(), architecture)


@pytest.mark.parametrize(
    ("head_dim", "group_size"), [(8, 8), (96, 32), (1024, 128), (128, 8), (128, 96), (64, 128)]
)
def test_sizes_that_no_kernel_has_are_refused(head_dim, group_size):
    with pytest.raises(SpecError, match="is not allowed on a GPU: a power of two, 16"):
        Variant(head_dim, group_size)


def test_without_a_compiler_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setenv(gpu_compile.LIBRARY_VARIABLE, "/nowhere/libnvrtc.so")
    gpu_compile._nvrtc.cache_clear()
    try:
        with pytest.raises(CompilerMissingError, match=r"pip install 'kvint2eval\[gpu\]'"):
            compile_program("sm_90")
    finally:
        gpu_compile._nvrtc.cache_clear()


def test_block_size_of_launches_is_that_of_the_kernels():
    text = (KERNEL_FOLDER / "common.cuh").read_text(encoding="utf-8")
    assert f"constexpr int THREADS = {launch.BLOCK_THREADS};" in text
    split = (KERNEL_FOLDER / "attend.cuh").read_text(encoding="utf-8")
    assert f"constexpr int MAX_SPLIT_TOKENS = {launch.split_tokens(10**9)};" in split


def test_edges_of_the_quantizer_are_those_of_its_formula():
    """The constants of symmetric_absmax_clip.cuh against a search over all float32 quotients."""

    def code(z):
        return np.rint((np.float32(z) + np.float32(1)) * np.float32(1.5))

    def ordered(key):
        """The key-th float32 in rising order."""
        bits = key if key >= 0 else (-key - 1) | 0x80000000
        return np.array([bits], np.uint32).view(np.float32)[0]

    text = (KERNEL_FOLDER / "symmetric_absmax_clip.cuh").read_text(encoding="utf-8")
    for wanted in (1, 2, 3):
        low, high = -0x3F800001, 0x3F800000  # -1 and 1
        assert code(ordered(low)) < wanted <= code(ordered(high))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if code(ordered(middle)) < wanted else (low, middle)
        numerator, denominator = re.search(rf"CODE_{wanted}_FROM = (-?[\d.]+) / ([\d.]+);", text).groups()
        midpoint = (float(ordered(low)) + float(ordered(high))) / 2
        assert float(numerator) / float(denominator) == midpoint
