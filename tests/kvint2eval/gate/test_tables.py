"""The pins file of the docs gate: the reader and its JSON Schema agree, and each refusal says what is allowed."""

import json
import subprocess
import tomllib

import jsonschema
import pytest

from kvint2eval import PinsError, read_pins
from kvint2eval.cli import main
from kvint2eval.gate.tables import read_gate_file
from kvint2eval.pins.roles import GATE_ROLES, ROLES, ROLES_V2
from tests.helpers import ROOT, TESTDATA
from tests.kvint2eval.gate import site

SCHEMA = json.loads((ROOT / "kvint2eval" / "pins" / "pins.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

ARTIFACT = {"role": "record", "id": "a", "path": "a.json", "sha256": "0" * 64}
PLACE = {"page": "p.md", "artifact": "a"}
FIGURE = {"page": "p.md", "record": "a.json", "pointer": "/x", "before": "b"}
UNANCHORED = {"page": "p.md", "record": "a.json", "pointer": "/x"}


def write(folder, *tables, head='format = "kvint2eval-pins/v1"\n'):
    path = folder / "pins.toml"
    path.write_text(head + "".join(site.table(name, **keys) for name, keys in tables), encoding="utf-8")
    return path


def test_schema_is_one_and_takes_every_pins_file_of_the_project(tmp_path):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for path in [*(TESTDATA / "pins").glob("*.toml"), site.make(tmp_path)]:
        VALIDATOR.validate(tomllib.loads(path.read_text()))


def test_schema_is_printed(capsys):
    assert main(["schema", "pins"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


def test_schema_lists_the_roles():
    artifact = SCHEMA["properties"]["artifact"]["items"]
    assert tuple(artifact["properties"]["role"]["enum"]) == ROLES + GATE_ROLES


@pytest.mark.parametrize("role", [role for role in GATE_ROLES if role not in ROLES_V2])
def test_adjudication_passes_over_the_roles_of_the_gate(tmp_path, role):
    nameless = {"role": role, "sha256": "0" * 64, "unbindable": "kept elsewhere"}
    path = write(tmp_path, ("artifact", {**ARTIFACT, "role": role}), ("artifact", nameless))
    assert read_pins(path).artifacts == ()
    file, other = read_gate_file(path).artifacts
    assert (file.role, file.file_sha256, other.role, other.unbindable) == (role, None, role, "kept elsewhere")


@pytest.mark.parametrize("role", [role for role in GATE_ROLES if role not in ROLES_V2])
def test_adjudication_checks_the_form_of_what_it_passes_over(tmp_path, role):
    path = write(tmp_path, ("artifact", {**ARTIFACT, "role": role, "path": "../a.json"}))
    with pytest.raises(PinsError, match=r"artifact 1: found path '\.\./a\.json', allowed: a relative path"):
        read_pins(path)


GOOD = [
    [("place", PLACE)],
    [("place", PLACE | {"role": "record", "before": "x", "after": "y", "under": "z"})],
    [("place", PLACE | {"row": ["x", "y"], "column": "z", "under": "h"})],
    [("figure", FIGURE)],
    [("figure", FIGURE | {"pointer": ["/x", "/a~1b/0"], "format": "{:.3f} {{{}}}"})],
    [("figure", FIGURE | {"format": "{:+,.2%}"}), ("place", PLACE)],
]

BAD = [
    (("place", {}), "place 1: found no page, allowed: a table with page, artifact"),
    (("place", PLACE | {"line": 1}), "place 1: found key 'line', allowed: page, artifact, role, row, column"),
    (("place", PLACE | {"page": " "}), "place 1: found page = ' ', allowed: a text"),
    (("place", PLACE | {"page": "/p.md"}), "place 1: found path '/p.md', allowed: a relative path"),
    (("place", PLACE | {"under": "h"}), "found under alone, allowed: under with row and column, before or after"),
    (("place", PLACE | {"row": "x"}), "found only one of row and column, allowed: both, or neither"),
    (("place", PLACE | {"column": "x"}), "found only one of row and column, allowed: both, or neither"),
    (("place", PLACE | {"row": "x", "column": "y", "before": "z"}), "found row together with before or after"),
    (("place", PLACE | {"row": 1, "column": "y"}), "found row = 1, allowed: a text, or a list of texts"),
    (("figure", FIGURE | {"before": 1}), "figure 1: found before = 1, allowed: a text"),
    (("figure", FIGURE | {"pointer": "x"}), "found pointer 'x', allowed: a JSON pointer such as /metrics/cache_bytes"),
    (("figure", FIGURE | {"pointer": "/a~2"}), "found pointer '/a~2', allowed: a JSON pointer"),
    (("figure", {**FIGURE, "under": "x"} | {"before": ""}), "found before = '', allowed: a text"),
    (("figure", UNANCHORED), "found no anchor, allowed: row and column"),
]  # fmt: skip

# What the schema cannot say.
BEYOND = [
    (("place", PLACE | {"artifact": "b"}), "found artifact 'b', which 0 artifacts have as id, allowed: one id of a"),
    (("place", PLACE | {"role": "kernel"}), "found artifact 'a', which 0 artifacts have as id"),
    (("artifact", ARTIFACT), None),
    (("figure", FIGURE | {"record": "b.json"}), "found record 'b.json', which no [[artifact]] has as path"),
    (("figure", FIGURE | {"format": "{} {}"}), "found 2 fields in format '{} {}' for 1 pointers, allowed: one"),
    (("figure", FIGURE | {"format": "x"}), "found format 'x' without a field, allowed: one {} or more"),
    (("figure", FIGURE | {"format": "{0}"}), "found '{0}' in format '{0}', allowed: {}, {:d}, {:,d}, {:.3f}"),
    (("figure", FIGURE | {"format": "{!r}"}), "found '{!r}' in format"),
    (("figure", FIGURE | {"format": "{:>1000000000}"}), "found '{:>1000000000}' in format"),
    (("figure", FIGURE | {"format": "{:.100f}"}), "found '{:.100f}' in format"),
    (("figure", FIGURE | {"format": "a } b {}"}), "found '}' in format 'a } b {}'"),
]  # fmt: skip


@pytest.mark.parametrize("tables", GOOD)
def test_reader_and_schema_take(tmp_path, tables):
    path = write(tmp_path, ("artifact", ARTIFACT), *tables)
    VALIDATOR.validate(tomllib.loads(path.read_text()))
    file = read_gate_file(path)
    assert len(file.places) + len(file.figures) == len(tables)


@pytest.mark.parametrize(("table", "message"), BAD)
def test_reader_and_schema_refuse(tmp_path, table, message):
    path = write(tmp_path, ("artifact", ARTIFACT), table)
    assert not VALIDATOR.is_valid(tomllib.loads(path.read_text()))
    with pytest.raises(PinsError, match="pins file ") as caught:
        read_gate_file(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(("table", "message"), BEYOND)
def test_reader_refuses_what_the_schema_cannot_say(tmp_path, table, message):
    path = write(tmp_path, ("artifact", ARTIFACT), table)
    VALIDATOR.validate(tomllib.loads(path.read_text()))
    if message is None:  # one more artifact with that id is good, until a place has to choose
        read_gate_file(path)
        path = write(tmp_path, ("artifact", ARTIFACT), table, ("place", PLACE))
        message = "found artifact 'a', which 2 artifacts have as id"
    with pytest.raises(PinsError) as caught:
        read_gate_file(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("pages = 1\n", "found pages = 1, allowed: a text, or a list of texts"),
        ('pages = ["../x"]\n', "found path '../x', allowed: a relative path"),
        ("place = 1\n", "found place that is no list of tables, allowed: [[place]]"),
        ("place = [1]\n", "place 1: found 1, allowed: a table"),
        ("figure = {}\n", "found figure that is no list of tables, allowed: [[figure]]"),
        ("pins = 1\n", "found table 'pins', allowed: format, pages, artifact, place, figure"),
    ],
)
def test_wrong_top_level_is_refused(tmp_path, head, message):
    path = write(tmp_path, ("artifact", ARTIFACT), head='format = "kvint2eval-pins/v1"\n' + head)
    assert not VALIDATOR.is_valid(tomllib.loads(path.read_text()))
    with pytest.raises(PinsError) as caught:
        read_gate_file(path)
    assert message in str(caught.value)


def test_digest_of_a_folder_is_that_of_its_listing(tmp_path):
    """The same digest as the shell prints, whatever else lies in the folder and however lines end."""
    files = {"b.py": b"b\r\n", "a.py": b"a\n", "deep/c.cu": b"c\n", "a-b.py": b"", "é.py": b"", "x.txt": b"x"}
    for name, data in files.items():
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_bytes(data.replace(b"\r", b""))
    command = "find src -name '*.py' -o -name '*.cu' | LC_ALL=C sort | xargs sha256sum | sha256sum"
    done = subprocess.run(["/bin/bash", "-c", command], cwd=tmp_path, capture_output=True, check=True)
    expected = done.stdout.decode().split()[0]
    for name, data in files.items():
        (tmp_path / "src" / name).write_bytes(data)
    artifact = {**ARTIFACT, "path": "src", "tree": ["*.py", "*.cu"], "text": True, "sha256": expected}
    path = write(tmp_path, ("artifact", artifact))
    VALIDATOR.validate(tomllib.loads(path.read_text()))
    assert read_gate_file(path).artifacts[0].file_sha256 == expected
    for change in ("edit", "add", "rename"):
        if change == "edit":
            (tmp_path / "src" / "a.py").write_bytes(b"a\n\n")
        elif change == "add":
            (tmp_path / "src" / "a.py").write_bytes(b"a\n")
            (tmp_path / "src" / "new.py").write_bytes(b"")
        else:
            (tmp_path / "src" / "new.py").unlink()
            (tmp_path / "src" / "b.py").rename(tmp_path / "src" / "d.py")
        assert read_gate_file(path).artifacts[0].file_sha256 != expected


@pytest.mark.parametrize("kind", ["empty", "link", "file"])
def test_a_folder_without_a_regular_file_has_no_digest(tmp_path, kind):
    (tmp_path / "a.py").write_bytes(b"")
    if kind != "file":
        (tmp_path / "src").mkdir()
    if kind == "link":
        (tmp_path / "src" / "b.py").symlink_to(tmp_path / "a.py")
    artifact = {**ARTIFACT, "path": "a.py" if kind == "file" else "src", "tree": ["*.py"]}
    assert read_gate_file(write(tmp_path, ("artifact", artifact))).artifacts[0].file_sha256 is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tree": []}, "found tree = [], allowed: a list of file names"),
        ({"tree": ["a/*.py"]}, "found tree = ['a/*.py'], allowed: a list of file names"),
        ({"tree": "*.py"}, "found tree = '*.py', allowed: a list of file names"),
        ({"tree": [1]}, "found tree = [1], allowed: a list of file names"),
    ],
)
def test_reader_and_schema_refuse_a_tree(tmp_path, keys, message):
    path = write(tmp_path, ("artifact", ARTIFACT | keys))
    assert not VALIDATOR.is_valid(tomllib.loads(path.read_text()))
    with pytest.raises(PinsError) as caught:
        read_gate_file(path)
    assert message in str(caught.value)


def test_a_tree_without_a_path_is_refused(tmp_path):
    entry = {"role": "producer", "sha256": "0" * 64, "unbindable": "x", "tree": ["*.py"]}
    path = write(tmp_path, ("artifact", entry))
    assert not VALIDATOR.is_valid(tomllib.loads(path.read_text()))
    with pytest.raises(PinsError, match="found tree without path, allowed: tree only for a file or folder"):
        read_gate_file(path)
