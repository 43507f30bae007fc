"""The command: exit codes, streams, inputs, outputs."""

import errno
import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from kvint2eval import __version__, cli
from kvint2eval.cli import main
from kvint2eval.codes import FINDINGS, Reason
from kvint2eval.files.digest import sha256_hex
from tests.helpers import RECORDS, ROOT, TESTDATA, published
from tests.tools.regen import __main__ as regen
from tests.tools.regen.artifacts import Artifact, artifacts

SUPPORTED = RECORDS / "supported" / "l4-published.json"
UNSUPPORTED = RECORDS / "unsupported" / "cache-bytes-one-too-high.json"
DELEGATE = RECORDS / "delegate" / "runtime-not-cuda-numpy.json"


def kvint2eval(*arguments, **options):
    """Run the command as a user does."""
    command = [sys.executable, "-m", "kvint2eval", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, cwd=ROOT, **options)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([SUPPORTED], 0),
        ([UNSUPPORTED], 1),
        ([DELEGATE], 3),
        ([DELEGATE, "--accept-delegate"], 0),
        ([SUPPORTED, DELEGATE], 3),
        ([SUPPORTED, UNSUPPORTED, DELEGATE], 1),
        ([SUPPORTED, UNSUPPORTED, "absent.json"], 2),
        (["absent.json"], 2),
        ([RECORDS / "supported"], 0),
        ([RECORDS], 1),
        ([SUPPORTED, "--pins", TESTDATA / "pins" / "met.toml"], 0),
        ([SUPPORTED, "--pins", TESTDATA / "pins" / "moved.toml"], 1),
        ([SUPPORTED, "--pins", "absent.toml"], 2),
    ],
)
def test_exit_code(arguments, code, capfd):
    assert main(["adjudicate", *map(str, arguments)]) == code
    out, err = capfd.readouterr()
    assert ("kvint2eval: error: " in err) == (code == 2)
    assert bool(out) == (arguments[0] != "absent.json" and "absent.toml" not in arguments)


@pytest.mark.parametrize(
    "arguments",
    [[], ["adjudicate"], ["judge"], ["adjudicate", "a", "--format", "xml"], ["adjudicate", "a", "--jobs", "0"],
     ["adjudicate", "a", "--jobs", "x"], ["schema", "v9"]],
)  # fmt: skip
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: kvint2eval" in capsys.readouterr().err


def test_unknown_value_is_answered_with_what_is_allowed(capsys):
    with pytest.raises(SystemExit):
        main(["adjudicate", "a", "--jobs", "-1"])
    assert "found '-1', allowed: a whole number from 1 to 256" in capsys.readouterr().err


def test_nothing_to_check_is_never_a_success(tmp_path, capfd):
    (tmp_path / "readme.txt").write_text("no record")
    (tmp_path / "empty.jsonl").write_text("")
    assert main(["adjudicate", str(tmp_path / "empty.jsonl")]) == 2
    assert "found no record" in capfd.readouterr().err
    (tmp_path / "empty.jsonl").unlink()
    assert main(["adjudicate", str(tmp_path)]) == 2
    assert "found no *.json, *.jsonl or *.ndjson below this folder" in capfd.readouterr().err


def test_verdicts_go_to_stdout_and_the_tally_to_stderr(capfd):
    main(["adjudicate", str(SUPPORTED), str(DELEGATE), "--format", "jsonl"])
    out, err = capfd.readouterr()
    assert [json.loads(line)["outcome"] for line in out.splitlines()] == ["supported", "delegate"]
    assert err == "kvint2eval: 2 records: 1 supported, 0 unsupported, 1 delegate\n"


def test_json_document_has_verdicts_and_tally(capfd):
    main(["adjudicate", str(SUPPORTED), str(DELEGATE), "absent.json", "--format", "json"])
    document = json.loads(capfd.readouterr().out)
    assert document["format"] == "kvint2eval-verdicts/v1"
    assert [one["outcome"] for one in document["verdicts"]] == ["supported", "delegate"]
    assert document["tally"] == {"supported": 1, "unsupported": 0, "delegate": 1, "errors": 1}


@pytest.mark.parametrize(
    ("data", "arguments", "outcomes", "lines"),
    [
        (published(), [], ["supported"], [None]),
        (b"\n\n" + json.dumps(json.loads(published())).encode() + b"\n{}\n", [], ["unsupported"] * 2, None),
        (json.dumps(json.loads(published())).encode(), [], ["supported"], [1]),
        (json.dumps(json.loads(published())).encode() + b"\n{}", [], ["supported", "unsupported"], [1, 2]),
        (published(), ["--lines"], ["unsupported"] * published().count(b"\n"), None),
        (b"", [], ["unsupported"], [None]),
        (b"[1,\n2]", [], ["unsupported"], [None]),
        (b"x" * 3_000_000, [], ["unsupported"], [None]),
    ],
    ids=["one", "leading-blank", "one-line", "two-lines", "told-lines", "empty", "array", "too-large"],
)
def test_standard_input(data, arguments, outcomes, lines):
    done = kvint2eval("adjudicate", "-", "--format", "jsonl", *arguments, input=data)
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    if lines is not None:
        assert [one["line"] for one in verdicts] == lines
        assert [one["outcome"] for one in verdicts] == outcomes
    else:
        assert {one["outcome"] for one in verdicts} <= {"supported", "unsupported"}
        assert len(verdicts) >= len(outcomes)
    assert done.returncode == (1 if "unsupported" in outcomes else 0)


def test_empty_standard_input_of_lines_is_an_error():
    done = kvint2eval("adjudicate", "-", "--lines", input=b"")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"standard input: found no record" in done.stderr


def test_jobs_change_nothing(tmp_path):
    lines = tmp_path / "a.jsonl"
    lines.write_bytes((json.dumps(json.loads(published())).encode() + b"\n{}\n") * 700)
    arguments = ["adjudicate", lines, RECORDS, "--format", "json"]
    one, three = kvint2eval(*arguments), kvint2eval(*arguments, "--jobs", 3)
    assert (one.returncode, one.stdout, one.stderr) == (three.returncode, three.stdout, three.stderr)
    assert json.loads(one.stdout)["tally"]["supported"] > 700


# Hostile files.


def test_two_gigabytes_are_refused_without_being_read(tmp_path, capfd):
    path = tmp_path / "big.json"
    with path.open("wb") as stream:
        stream.truncate(2 << 30)
    assert main(["adjudicate", str(path), "--format", "jsonl"]) == 1
    # The file is all NUL, which is no JSON; that it is too large is seen first.
    assert json.loads(capfd.readouterr().out)["finding"]["code"] == "record-too-large"


def test_a_named_pipe_is_refused_at_once(tmp_path, capfd):
    os.mkfifo(tmp_path / "pipe.json")
    assert main(["adjudicate", str(tmp_path)]) == 2
    assert "found a named pipe, allowed: a regular file" in capfd.readouterr().err


def test_links_are_refused_and_loops_end(tmp_path, capfd):
    (tmp_path / "a.json").write_bytes(published())
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "loop").symlink_to(tmp_path)
    (tmp_path / "inner" / "link.json").symlink_to(tmp_path / "a.json")
    assert main(["adjudicate", str(tmp_path), "--format", "jsonl"]) == 2
    out, err = capfd.readouterr()
    assert [json.loads(line)["outcome"] for line in out.splitlines()] == ["supported"]
    assert "loop: found a symbolic link to a folder, which is not followed" in err
    assert "link.json: found a symbolic link, allowed: a regular file" in err


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path, capfd, monkeypatch):
    (tmp_path / "a.json").write_bytes(published())

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert main(["adjudicate", str(tmp_path)]) == 2
    assert "Permission denied" in capfd.readouterr().err


def test_folders_are_walked_in_a_fixed_order(tmp_path, capfd):
    for name in ("b/2.json", "a/z.jsonl", "a/b/1.json", "c.json", "b.json", "a/note.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")
    main(["adjudicate", str(tmp_path), "--format", "jsonl"])
    paths = [json.loads(line)["input"] for line in capfd.readouterr().out.splitlines()]
    assert [path.removeprefix(f"{tmp_path}/") for path in paths] == [
        "b.json", "c.json", "a/z.jsonl", "a/b/1.json", "b/2.json",
    ]  # fmt: skip


def test_a_name_that_is_no_utf8_is_shown_escaped(tmp_path, capfd):
    path = os.fsencode(tmp_path) + b"/\xff\n::error::x.json"
    with open(path, "wb") as stream:  # noqa: PTH123  # pathlib takes no bytes
        stream.write(b"{}")
    for name in ("text", "jsonl"):
        assert main(["adjudicate", str(tmp_path), "--format", name]) == 1
        out = capfd.readouterr().out
        assert "\\udcff\\n::error::x.json" in out.replace("\\\\", "\\")


# Output files.


def test_output_file_is_whole_and_replaces_the_old_one(tmp_path, capfd):
    target = tmp_path / "verdicts.jsonl"
    target.write_text("old")
    assert (
        main(["adjudicate", str(SUPPORTED), "--format", "jsonl", "--output", str(target), "--jobs", "2"]) == 0
    )
    assert json.loads(target.read_text())["outcome"] == "supported"
    assert [path.name for path in tmp_path.iterdir()] == ["verdicts.jsonl"]
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(("name", "message"), [("absent/v.json", "No such file"), (".", "found a folder")])
def test_output_that_cannot_be_written_is_said_before_judging(tmp_path, name, message, capfd):
    assert main(["adjudicate", str(SUPPORTED), "--output", str(tmp_path / name)]) == 2
    assert message in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_interrupted_run_leaves_the_old_output(tmp_path):
    target = tmp_path / "verdicts.jsonl"
    target.write_text("old")
    os.mkfifo(tmp_path / "in")
    command = [sys.executable, "-m", "kvint2eval", "adjudicate", "-", "--output", str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        process.stdin.write(b"{}\n{}\n")
        process.stdin.flush()
        while not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert b"interrupted" in err
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "verdicts.jsonl"]


def test_reader_that_goes_away_is_no_traceback():
    command = [sys.executable, "-m", "kvint2eval", "adjudicate", str(RECORDS), "--format", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 2
    assert b"Traceback" not in err


def test_internal_fault_is_said_and_exits_with_2(monkeypatch, capsys):
    def fail(*_arguments, **_options):
        raise ValueError("surprise\n::error::x")

    monkeypatch.setattr("kvint2eval.files.inputs.collect", fail)
    assert main(["adjudicate", str(SUPPORTED)]) == 2
    assert capsys.readouterr().err == (
        "kvint2eval: error: internal fault, please report it: ValueError: surprise\\n::error::x\n"
    )


# Colour.


def coloured(*arguments, **environment):
    """Output of the command on a terminal."""
    primary, secondary = pty.openpty()
    inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    command = [sys.executable, "-m", "kvint2eval", "adjudicate", str(SUPPORTED), *arguments]
    subprocess.run(
        command, stdout=secondary, check=False, cwd=ROOT, env={**inherited, "TERM": "xterm", **environment}
    )
    os.close(secondary)
    out = os.read(primary, 10_000)
    os.close(primary)
    return b"\x1b[32m" in out


def test_colour_obeys_terminal_variable_and_option():
    assert coloured()
    assert not coloured(NO_COLOR="1")
    assert not coloured(TERM="dumb")
    assert coloured("--color", "always", NO_COLOR="1")
    assert not coloured("--color", "never")
    assert b"\x1b" not in kvint2eval("adjudicate", SUPPORTED).stdout
    assert b"\x1b[32m" in kvint2eval("adjudicate", SUPPORTED, "--color", "always").stdout


# The other subcommands.


@pytest.mark.parametrize("code", [*FINDINGS, *Reason, "kvint2_pin_mismatch"])
def test_explain_has_meaning_example_and_mend(code, capsys):
    assert main(["explain", code]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        code.upper() if code in set(Reason) else code if code in FINDINGS else "KVINT2_PIN_MISMATCH"
    )
    assert "  fix      " in out
    assert "  example  " in out or code == "KVINT2_SUPPORTED"


def test_explain_lists_all_codes_and_refuses_an_unknown_one(capsys):
    assert main(["explain"]) == 0
    out = capsys.readouterr().out
    assert all(code in out for code in [*FINDINGS, *Reason])
    assert main(["explain", "KVINT2_NOTHING"]) == 2
    assert (
        'found code "KVINT2_NOTHING", allowed: a code that `kvint2eval explain` lists'
        in capsys.readouterr().err
    )


def test_schema_prints_the_published_one(capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:kvint2eval:contract:v1"


def test_digest_prints_what_sha256sum_prints(tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\r\n")
    assert main(["digest", str(path)]) == 0
    assert main(["digest", "--text", str(path)]) == 0
    assert (
        capsys.readouterr().out
        == f"{sha256_hex(b'a' + bytes([13, 10]))}  {path}\n{sha256_hex(b'a' + bytes([10]))}  {path}\n"
    )
    assert main(["digest", str(tmp_path), str(path)]) == 2
    captured = capsys.readouterr()
    assert "found a folder" in captured.err
    assert captured.out.endswith(f"  {path}\n")


def test_digest_of_a_witness_mends_a_record(tmp_path, capfd):
    record = json.loads(published())
    record["hardware"]["os"] = "Ubuntu 24.04"
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    assert main(["digest", "--witness", str(path)]) == 0
    record["witness_sha256"] = capfd.readouterr().out.split()[0]
    path.write_text(json.dumps(record))
    assert main(["adjudicate", str(path)]) == 0
    path.write_text("[]")
    assert main(["digest", "--witness", str(path)]) == 2
    assert "no v1 record: not-an-object: found an array, allowed: an object" in capfd.readouterr().err


def test_diff_names_each_place(tmp_path, capsys):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text('{"a": 1, "b": [1, 2], "c": {"d/e": true}, "same": 1.0}')
    second.write_text('{"same": 1, "a": 1, "b": [1], "c": {"d/e": 1}, "f": "x\\ny"}')
    assert main(["diff", str(first), str(second)]) == 1
    assert capsys.readouterr().out == '/b/1: 2 -> (absent)\n/c/d~1e: true -> 1\n/f: (absent) -> "x\\ny"\n'
    assert main(["diff", str(first), str(first)]) == 0
    assert capsys.readouterr().out == ""
    second.write_text("[1")
    assert main(["diff", str(first), str(second)]) == 2
    assert f"{second}, line 1, column 3: invalid-json" in capsys.readouterr().err
    second.write_text("")
    assert main(["diff", str(first), str(second)]) == 2
    assert f"{second}: empty-input" in capsys.readouterr().err
    assert main(["diff", str(first), str(tmp_path)]) == 2
    second.write_text("1")
    assert main(["diff", str(first), str(second)]) == 1
    assert "(the whole record): an object -> 1" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"kvint2eval {__version__}\n"


def test_entry_exits_with_the_code(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["kvint2eval", "explain", "nothing"])
    with pytest.raises(SystemExit) as left:
        cli.entry()
    assert left.value.code == 2


# Generating.


def test_check_mode_of_regen_names_what_differs_and_writes_nothing(tmp_path, monkeypatch, capsys):
    made = [
        Artifact("same.txt", lambda: b"a"),
        Artifact("changed.txt", lambda: b"a"),
        Artifact("new/a.txt", lambda: b"a"),
    ]
    monkeypatch.setattr(regen, "ROOT", tmp_path)
    monkeypatch.setattr(regen, "artifacts", lambda: made)
    (tmp_path / "same.txt").write_bytes(b"a")
    (tmp_path / "changed.txt").write_bytes(b"b")
    tmp_path.chmod(0o500)
    assert regen.main(["--check"]) == 1
    assert capsys.readouterr().out == "differs: changed.txt\ndiffers: new/a.txt\n"
    assert (tmp_path / "changed.txt").read_bytes() == b"b"
    tmp_path.chmod(0o700)
    assert regen.main([]) == 0
    assert capsys.readouterr().out == "written: changed.txt\nwritten: new/a.txt\n"
    assert regen.main(["--check"]) == 0
    assert regen.main(["--chek"]) == 2


def test_no_file_is_generated_twice():
    assert len({artifact.path for artifact in artifacts()}) == len(list(artifacts()))
