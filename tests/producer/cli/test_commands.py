"""The command: exit codes, messages, files, and what is refused before any work."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from kvint2eval import __version__, adjudicate
from producer import cli
from producer.backend.cpu import NumpyBackend
from producer.cli.common import ProgressBar, memory_size
from producer.experiment.slice.plot import plot_run
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PUBLISHED, SliceSpec
from tests.helpers import RECORDS, ROOT, published

SMALL = ["--seq-len", "256", "--kv-heads", "2", "--head-dim", "64", "--output-dim", "16", "--seed", "1"]
FEW = ["--evaluation-queries", "8", "--calibration-queries", "8", "--rotations", "2", "--threads", "1"]


@pytest.fixture
def published_file(tmp_path):
    path = tmp_path / "published.json"
    path.write_bytes(published())
    return path


def run(capsys, *arguments):
    code = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_run_writes_a_record_a_side_file_and_a_plot(tmp_path, capsys):
    path, plot = tmp_path / "record.json", tmp_path / "plot.svg"
    code, out, err = run(capsys, "run", *SMALL, *FEW, "-o", path, "--plot", plot)
    assert code == 0
    assert err == (
        f"kvint2eval-producer: the record is unsupported, recipe-group-size: kvint2eval adjudicate {path} says why\n"
    )
    figures = json.loads(path.read_bytes())["metrics"]
    assert f"the record holds: output NMSE {figures['baseline_output_nmse']!r} of the baseline" in out
    # Head dimension 64 cannot have groups of 128, which is the only size that v1 covers.
    assert adjudicate(path.read_bytes()).reason == "KVINT2_UNSUPPORTED_QUANTIZATION"
    assert json.loads((tmp_path / "record.json.trials").read_text())["layout"].endswith("trials-1")
    assert "</svg>" in plot.read_text()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "plot.svg",
        "record.json",
        "record.json.trials",
    ]
    assert "the clip grid was extended until every optimum was inside it, by 0.55" in out
    assert "null check" in out
    assert out.count("*") == 1


def test_the_same_seed_gives_the_same_record_but_for_times(tmp_path, capsys):
    records = []
    for threads in ("1", "2"):
        path = tmp_path / f"{threads}.json"
        assert run(capsys, "run", *SMALL, *FEW[:-1], threads, "-o", path)[0] == 0
        record = json.loads(path.read_text())
        del record["witness_sha256"]
        for members in (record["metrics"], *record["metrics"]["candidates"]):
            for name in [name for name in members if "seconds" in name]:
                del members[name]
        records.append(record)
    assert records[0] == records[1]


def test_a_folder_of_records_holds_nothing_else_that_looks_like_one(tmp_path, capsys):
    run(capsys, "run", "--seq-len", "64", *FEW, "-o", tmp_path / "record.json")
    assert [path.name for path in tmp_path.glob("*.json*") if path.suffix in {".json", ".jsonl"}] == [
        "record.json"
    ]
    verdict = adjudicate((tmp_path / "record.json").read_bytes())
    assert verdict.reason == "KVINT2_RUNTIME_DELEGATION_REQUIRED"


def test_json_output_is_one_line(tmp_path, capsys):
    code, out, _ = run(capsys, "run", *SMALL, *FEW, "--format", "json", "-o", tmp_path / "r.json")
    assert code == 0
    assert out.count("\n") == 1
    assert json.loads(out)["candidate_count"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seq-len", "0"], "seq_len 0 is not allowed: an integer 1 … 1048576"),
        (["--head-dim", "96"], "head_dim 96 has no Sylvester-Hadamard transform: a power of two"),
        (["--group-size", "48"], "group_size 48 is not allowed: it must divide head_dim 128"),
        (["--threads", "0"], "threads 0 is not allowed: an integer 1 … 256"),
        (["--rotations", "0"], "num_rotations 0 is not allowed: an integer 1 … 255"),
        (["--seed", "4294967296"], "seed 4294967296 is not allowed"),
        (["--memory-limit", "1M"], "bytes of memory, allowed are 1048576"),
        (["--plot", "plot.pdf"], "plot plot.pdf is not allowed: its ending must be one of .svg, .png"),
        (["--plot", "none/plot.png"], "there is no folder none"),
        (
            ["--protocol", "published", "--rotations", "3"],
            "--rotations 3 is not allowed: the published protocol",
        ),
        (["-o", "none/record.json"], "there is no folder none"),
        (["-o", "."], "exists and is no regular file"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "producer.experiment.slice.protocol.build_slice", lambda *_: pytest.fail("work had begun")
    )
    code, out, err = run(capsys, "run", "-o", "record.json", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("kvint2eval-producer: error: ")
    assert list(tmp_path.iterdir()) == []


def test_more_rotations_than_sign_vectors_is_refused(tmp_path, capsys):
    code, _, err = run(
        capsys, "run", *SMALL[:4], "--head-dim", "4", "--rotations", "9", "-o", tmp_path / "r.json"
    )
    assert code == 2
    assert "only 8 sign vectors differ up to sign" in err


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"kvint2eval-producer {__version__}\n"


@pytest.mark.parametrize("arguments", [["run"], ["run", "-o", "x", "--seed", "a"], [], ["nothing"]])
def test_wrong_usage_ends_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--require-cuda"], ["--backend", "cupy"]])
@pytest.mark.parametrize("form", ["text", "json"])
def test_without_cuda_the_result_is_a_typed_delegate(tmp_path, capsys, monkeypatch, arguments, form):
    monkeypatch.setattr("producer.backend.cuda_problem", lambda: "CuPy is not installed")
    code, out, err = run(capsys, "run", *SMALL, *arguments, "--format", form, "-o", tmp_path / "r.json")
    assert (code, err) == (3, "")
    assert list(tmp_path.iterdir()) == []
    if form == "json":
        assert json.loads(out)["reason"] == "KVINT2_RUNTIME_DELEGATION_REQUIRED"
        assert json.loads(out)["outcome"] == "delegate"
    else:
        assert out.startswith("delegate KVINT2_RUNTIME_DELEGATION_REQUIRED: ")


def test_rederive_and_audit_of_the_published_record(published_file, capsys):
    code, out, _ = run(capsys, "rederive", published_file)
    assert code == 0
    assert out.endswith("54 of 54 deterministic fields agree\n")
    code, out, _ = run(capsys, "audit", published_file)
    assert code == 1
    assert out.endswith("7 findings\n")


def test_rederive_shows_the_field_that_disagrees(tmp_path, capsys):
    path = tmp_path / "record.json"
    run(capsys, "run", *SMALL, *FEW, "-o", path)
    record = json.loads(path.read_text())
    record["metrics"]["candidates"][2]["output_nmse_mean"] *= 1.001
    path.write_text(json.dumps(record))
    code, out, _ = run(capsys, "rederive", path, "--threads", "1")
    assert code == 1
    wrong = [line.split()[0] for line in out.splitlines() if line.endswith("DISAGREES")]
    assert wrong == ["/metrics/candidates/2/output_nmse_mean", "/witness_sha256"]
    code, out, _ = run(capsys, "rederive", path, "--format", "json")
    assert code == 1
    assert json.loads(out)["agrees"] is False


def test_audit_of_a_sound_record(tmp_path, capsys):
    path = tmp_path / "record.json"
    run(capsys, "run", *SMALL, *FEW, "-o", path)
    assert run(capsys, "audit", path)[:2] == (0, "no findings\n")
    code, out, _ = run(capsys, "audit", path, "--format", "json")
    assert (code, json.loads(out)) == (0, {"findings": []})


@pytest.mark.parametrize("command", ["rederive", "audit"])
def test_what_cannot_be_judged_ends_with_2(command, tmp_path, capsys):
    malformed = tmp_path / "malformed.json"
    malformed.write_text('{"a": 1\n')
    unknown = tmp_path / "unknown.json"
    unknown.write_bytes(published().replace(b"kvint2eval-l4-output-aware-slice", b"another\\nslice"))
    for path in (malformed, unknown, tmp_path / "none.json", tmp_path):
        code, out, err = run(capsys, command, path)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["rederive", "audit"])
def test_modeled_figures_are_delegated(command, tmp_path, capsys):
    path = tmp_path / "modeled.json"
    path.write_bytes(published().replace(b'"observed"', b'"modeled"'))
    code, out, _ = run(capsys, command, path)
    assert code == 3
    assert out.startswith("delegate KVINT2_MODELED_NOT_OBSERVED: ")


@pytest.mark.parametrize("command", ["rederive", "audit"])
def test_records_of_other_kinds_never_end_in_a_traceback(command, tmp_path, capsys):
    path = tmp_path / "record.json"
    for refused in sorted(RECORDS.glob("unsupported/*.json"))[::20]:
        # The fault stays, the slice becomes small.
        small = refused.read_bytes().replace(b'"context_tokens": 4096', b'"context_tokens": 256')
        path.write_bytes(small.replace(b'"kv_heads": 4', b'"kv_heads": 1'))
        code, _, err = run(capsys, command, path, "--memory-limit", "1G", "--threads", "1")
        assert code in {0, 1, 2}
        assert "Traceback" not in err
        assert "internal fault" not in err


def test_doctor_says_what_is_missing(capsys):
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert "numpy_backend" in out
    code, out, _ = run(capsys, "doctor", "--format", "json")
    assert json.loads(out)["numpy_backend"] == "ready"


def test_an_interrupted_run_leaves_no_file(tmp_path):
    command = [sys.executable, "-m", "producer", "run", "--seq-len", "65536", "-o", str(tmp_path / "r.json")]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "kvint2eval-producer: error: interrupted; no file is half written\n"
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (MemoryError(), "out of memory"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
        (RuntimeError("x\ny"), r"internal fault, please report it: RuntimeError: x\ny"),
    ],
)
def test_faults_of_a_run_end_in_a_message(tmp_path, capsys, monkeypatch, fault, message):
    def fail(*_args, **_options):
        raise fault

    monkeypatch.setattr("producer.experiment.slice.protocol.run_protocol", fail)
    code, out, err = run(capsys, "run", *SMALL, "-o", tmp_path / "r.json")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_gets_no_traceback(published_file):
    command = f"{sys.executable} -m producer rederive {published_file} | head -1"
    made = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S602
    assert made.stdout.startswith("field")
    assert made.stderr == ""


def test_a_plot_without_matplotlib_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("producer.experiment.slice.plot.importlib.util.find_spec", lambda _name: None)
    code, _, err = run(capsys, "run", *SMALL, "--plot", tmp_path / "p.png", "-o", tmp_path / "r.json")
    assert code == 2
    assert "a plot needs matplotlib, which is not installed" in err


def test_a_picture_of_the_same_run_is_the_same(tmp_path):
    result = run_protocol(SliceSpec(seq_len=64), PUBLISHED, NumpyBackend(1))
    pictures = []
    for number in range(2):
        path = tmp_path / f"{number}.svg"
        plot_run(result, path, "svg")
        pictures.append(path.read_bytes())
    assert pictures[0] == pictures[1]
    plot_run(result, tmp_path / "p.png", "png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("300", 300), ("2k", 2048), ("3M", 3 * 2**20), ("1G", 2**30)]
)
def test_sizes(text, size):
    assert memory_size(text) == size


def test_a_size_that_is_none_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["run", "-o", str(tmp_path / "r.json"), "--memory-limit", "4X"])
    assert "'4X' is no size: digits, then nothing or one of K, M, G" in capsys.readouterr().err


def test_the_bar_is_drawn_on_a_terminal_only(capsys, monkeypatch):
    ProgressBar()(1, 2, "rotation 1")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    bar = ProgressBar()
    bar(1, 2, "rotation 1")
    bar(2, 2, "done")
    err = capsys.readouterr().err
    assert "[############............] rotation 1" in err
    assert err.endswith("\r\033[K")


def test_progress_is_a_line_every_half_minute_elsewhere(capsys, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    lines = ProgressBar()
    quiet = ProgressBar(quiet=True)
    # From step 10 of 100 on, one step in six seconds: those before were done by an earlier run.
    for done in range(10, 101):
        for bar in (lines, quiet):
            bar(done, 100, f"layer {done}\n")
        now[0] += 6
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 18
    assert shown[0] == "kvint2eval-producer: 15 of 100 done, about 8.5 min left; next: layer 15\\n"
    assert shown[-1] == "kvint2eval-producer: 100 of 100 done; next: layer 100\\n"


def test_quiet_silences_a_terminal_too(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    ProgressBar(quiet=True)(1, 2, "layer 1")
    assert capsys.readouterr().err == ""
