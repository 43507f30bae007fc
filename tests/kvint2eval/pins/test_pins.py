"""Pins: binding levels, and what a pins file may hold."""

import pytest

from kvint2eval import PinsError, adjudicate, read_pins
from kvint2eval.cli import main
from kvint2eval.files.digest import sha256_hex
from kvint2eval.pins.pins import MAX_PINS_BYTES
from tests.helpers import TESTDATA, published
from tests.tools.regen import published as figures
from tests.tools.regen.records import text

PINNED = TESTDATA / "pins" / "pinned.txt"


def write(folder, body, name="pins.toml"):
    path = folder / name
    path.write_text(f'format = "kvint2eval-pins/v1"\n{body}', encoding="utf-8")
    return path


def artifact(**keys):
    return "[[artifact]]\n" + "\n".join(
        f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
        for key, value in keys.items()
    )


def test_levels_of_binding(tmp_path):
    producer = tmp_path / "producer.cu"
    producer.write_bytes(b"int main() {\r\n}\r\n")
    digest = sha256_hex(b"int main() {\n}\n")
    record = figures.sealed({**figures.observed(digest), "witness_sha256": ""})
    pins = write(
        tmp_path,
        "\n".join(
            [
                artifact(role="artifact", sha256=digest, path="producer.cu", text=True),
                artifact(role="model", id="another-model", sha256="0" * 64, unbindable="not asked for"),
                artifact(role="runtime", sha256=figures.BINARY, unbindable="kept on the node"),
            ]
        ),
    )
    verdict = adjudicate(text(record), pins=read_pins(pins))
    assert verdict.outcome == "supported"
    assert [(one.role, one.level, one.path, one.why) for one in verdict.bindings] == [
        ("artifact", "bound", "producer.cu", None),
        ("recipe_artifact", "declared", None, "no pin names it"),
        ("model", "declared", None, "no pin names it"),
        ("runtime", "declared", None, "kept on the node"),
    ]


def test_text_and_raw_digests_differ_on_crlf(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\r\n")
    digest = sha256_hex(b"a\n")
    record = text(figures.sealed({**figures.observed(digest), "witness_sha256": ""}))
    as_text = read_pins(write(tmp_path, artifact(role="artifact", sha256=digest, path="a.txt", text=True)))
    as_bytes = read_pins(write(tmp_path, artifact(role="artifact", sha256=digest, path="a.txt")))
    assert adjudicate(record, pins=as_text).outcome == "supported"
    verdict = adjudicate(record, pins=as_bytes)
    assert (verdict.reason, verdict.finding.code) == ("KVINT2_PIN_MISMATCH", "pinned-file-mismatch")
    assert [one.level for one in verdict.bindings][:2] == ["mismatched", "declared"]


def test_one_of_several_pins_of_a_role_suffices(tmp_path):
    pins = write(
        tmp_path,
        artifact(role="artifact", sha256="0" * 64, unbindable="an older version")
        + "\n"
        + artifact(role="artifact", sha256=figures.PRODUCER, unbindable="this version"),
    )
    assert adjudicate(published(), pins=read_pins(pins)).bindings[0].why == "this version"


def test_a_pin_holds_only_for_the_id_and_version_it_names(tmp_path):
    for keys in ({"id": "other"}, {"version": "3"}):
        pins = read_pins(write(tmp_path, artifact(role="artifact", sha256="0" * 64, unbindable="x", **keys)))
        assert adjudicate(published(), pins=pins).outcome == "supported"
    exact = {"id": "kvint2eval-l4-output-aware-slice", "version": "2"}
    pins = read_pins(write(tmp_path, artifact(role="artifact", sha256="0" * 64, unbindable="x", **exact)))
    assert adjudicate(published(), pins=pins).reason == "KVINT2_PIN_MISMATCH"


def test_a_pin_never_changes_an_earlier_verdict(tmp_path):
    pins = read_pins(write(tmp_path, artifact(role="artifact", sha256="0" * 64, unbindable="x")))
    modeled = text(figures.modeled())
    assert adjudicate(modeled, pins=pins) == adjudicate(modeled)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "found no artifact"),
        ("artifact = 1", "found no artifact"),
        ("artifact = [1]", "artifact 1: found 1, allowed: a table"),
        ("[[other]]\n", "found table 'other'"),
        (
            '[[artifact]]\nrole = "kernal"',
            "found role 'kernal', allowed: artifact, recipe_artifact, model, runtime",
        ),
        ('[[artifact]]\nrole = "model"', "found sha256 None, allowed: 64 lower-case"),
        (artifact(role="model", sha256="A" * 64, unbindable="x"), "allowed: 64 lower-case hexadecimal"),
        (artifact(role="model", sha256="a" * 64), "found neither of path and unbindable"),
        (
            artifact(role="model", sha256="a" * 64, path="a", unbindable="x"),
            "found both of path and unbindable",
        ),
        (artifact(role="model", sha256="a" * 64, unbindable="x", text=True), "found text without path"),
        (artifact(role="model", sha256="a" * 64, unbindable=""), "found unbindable = ''"),
        (
            artifact(role="model", sha256="a" * 64, path="a") + "\ntext = 1",
            "found text = 1, allowed: true or false",
        ),
        (artifact(role="model", sha256="a" * 64, paths="a"), "found key 'paths'"),
        (artifact(role="model", sha256="a" * 64, path="../a"), "found path '../a'"),
        (artifact(role="model", sha256="a" * 64, path="/etc/passwd"), "found path '/etc/passwd'"),
        (artifact(role="model", sha256="a" * 64, path="C:/a"), "found path 'C:/a'"),
        (artifact(role="model", sha256="a" * 64, path="a\\b"), "found path"),
        (artifact(role="model", sha256="a" * 64, path="out/a"), "a symbolic link leads out of"),
        ("[[artifact]\n", "not TOML"),
        ("a = " + "[" * 5000, "found tables nested too deep"),
    ],
)
def test_unusable_pins_file_is_refused_with_what_is_allowed(tmp_path, body, message):
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    with pytest.raises(PinsError, match="pins file ") as caught:
        read_pins(write(root, body))
    assert message in str(caught.value)


def test_pins_file_of_another_format_or_no_text_is_refused(tmp_path):
    path = tmp_path / "pins.toml"
    path.write_text('format = "kvint2eval-pins/v9"\n')
    with pytest.raises(PinsError, match="found format 'kvint2eval-pins/v9'"):
        read_pins(path)
    path.write_bytes(b"format = '\xff'")
    with pytest.raises(PinsError, match="not UTF-8 at 10"):
        read_pins(path)
    path.write_bytes(b"#" * (MAX_PINS_BYTES + 1))
    with pytest.raises(PinsError, match="found more than 1048576 bytes"):
        read_pins(path)
    with pytest.raises(PinsError, match="No such file"):
        read_pins(tmp_path / "absent.toml")
    with pytest.raises(PinsError, match="found a folder"):
        read_pins(tmp_path)


def test_a_pinned_folder_is_no_pinned_file(tmp_path):
    pins = read_pins(write(tmp_path, artifact(role="artifact", sha256=figures.PRODUCER, path=".")))
    assert adjudicate(published(), pins=pins).finding.code == "pinned-file-missing"


def test_digest_of_the_stand_in_is_bound():
    pins = read_pins(TESTDATA / "pins" / "bound.toml")
    assert pins.artifacts[0].file_sha256 == pins.artifacts[0].sha256 == sha256_hex(PINNED.read_bytes())


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_pin_that_no_record_has_is_said_and_bound_can_be_required(tmp_path, capfd, jobs):
    """A renamed artifact would evade its pin."""
    text = (TESTDATA / "pins" / "met.toml").read_text()
    pins = tmp_path / "pins.toml"
    pins.write_text(text.replace('id = "kvint2eval-l4-output-aware-slice"', 'id = "renamed"'))
    record = TESTDATA / "records/v1/supported/l4-published.json"
    judged = ["adjudicate", str(record), str(record), "--pins", str(pins), "--jobs", jobs]
    assert main(judged) == 0
    assert (
        "unmet pins, which no record of this run was compared with: artifact renamed"
        in capfd.readouterr().err
    )
    assert main([*judged, "--require", "bound"]) == 1
    assert capfd.readouterr().out.count("digest-not-bound") == 2
