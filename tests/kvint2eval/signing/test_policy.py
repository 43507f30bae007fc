"""Signatures and policies: known answers, hostile envelopes, thresholds, expiry, producers, key files."""

import base64
import json
import os
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from securesystemslib.dsse import Envelope as LibraryEnvelope

from kvint2eval import adjudicate
from kvint2eval.cli import main
from kvint2eval.codes import FINDINGS
from kvint2eval.errors import PolicyError, SigningError
from kvint2eval.files.digest import sha256_hex
from kvint2eval.signing.envelope import (
    PAYLOAD_TYPE,
    Envelope,
    Signature,
    build_statement,
    dump_envelope,
    parse_envelope,
    pre_authentication_encoding,
)
from kvint2eval.signing.keys import (
    ALGORITHMS,
    PublicKey,
    generate_key,
    read_private_key,
    sign_statement,
    write_key_pair,
)
from kvint2eval.signing.policy import parse_policy, read_policy
from kvint2eval.verdict import Finding

TESTDATA = Path(__file__).resolve().parents[3] / "testdata"
RECORD = TESTDATA / "records/v2/supported/vector.json"
V1_RECORD = TESTDATA / "records/v1/supported/l4-published.json"
DATA = RECORD.read_bytes()
STATEMENT = build_statement("vector.json", DATA, "kvint2eval/v2")
ALICE, BOB, MALLORY = generate_key("ed25519"), generate_key("ecdsa-p256"), generate_key("ed25519")


def policy(*keys, threshold=1, expires="2999-01-01T00:00:00+00:00", producers=None, now=None, require=None):
    tables = {
        "format": "kvint2eval-policy/v1",
        "threshold": threshold,
        "expires": datetime.fromisoformat(expires),
        "key": [{"name": str(index), "public": key.public.pem.decode()} for index, key in enumerate(keys)],
    }
    optional = {"producers": producers, "require": require}
    return parse_policy(tables | {key: one for key, one in optional.items() if one is not None}, Path(), now)


def signed(*keys, statement=STATEMENT):
    envelope = None
    for key in keys:
        envelope = dump_envelope(sign_statement(statement, key, envelope))
    return envelope


def code(envelope, *keys, record=DATA, **rules):
    found = policy(*(keys or (ALICE, BOB)), **rules).verify(record, envelope)
    return found.code if isinstance(found, Finding) else None


# The pre-authentication encoding


@pytest.mark.parametrize(
    ("kind", "payload", "encoded"),
    [
        # The example of the DSSE protocol page.
        (
            "http://example.com/HelloWorld",
            b"hello world",
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world",
        ),
        ("", b"", b"DSSEv1 0  0 "),
        # Lengths count bytes: the type has four characters and six bytes.
        ("a\u00e9\u00e9b", "\u20ac".encode(), b"DSSEv1 6 a\xc3\xa9\xc3\xa9b 3 \xe2\x82\xac"),
        ("t", b"DSSEv1 1 t 1 x", b"DSSEv1 1 t 14 DSSEv1 1 t 1 x"),
    ],
)
def test_known_answer(kind, payload, encoded):
    assert pre_authentication_encoding(kind, payload) == encoded
    assert LibraryEnvelope(payload, kind, {}).pae() == encoded


def test_signature_of_the_protocol_page_verifies():
    # secure-systems-lab/dsse, protocol.md, "Test Vectors": a P-256 key, and r and s of its signature.
    x = 46950820868899156662930047687818585632848591499744589407958293238635476079160
    y = 5640078356564379163099075877009565129882514886557779369047442380624545832820
    raw = base64.b64decode(
        "A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA=="
    )
    key = PublicKey(ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key())
    signature = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    data = pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
    assert key.verifies(signature, data)
    assert not key.verifies(signature, data + b" ")


# What is trusted


@pytest.mark.parametrize("keys", [(ALICE,), (BOB,), (ALICE, BOB), (MALLORY, ALICE)])
def test_signed_record_is_trusted(keys):
    assert code(signed(*keys)) is None


def test_verdict_names_the_signers():
    verdict = adjudicate(DATA, policy=policy(ALICE, BOB, threshold=2), envelope=signed(ALICE, BOB))
    assert verdict.outcome == "supported"
    assert verdict.signers == (ALICE.public.keyid, BOB.public.keyid)


def test_url_safe_alphabet_is_read_too():
    members = json.loads(signed(ALICE))
    raw = base64.b64decode(members["payload"])
    members["payload"] = base64.urlsafe_b64encode(raw).decode()
    assert code(json.dumps(members).encode()) is None


def test_v1_record_can_be_signed():
    data = V1_RECORD.read_bytes()
    envelope = signed(ALICE, statement=build_statement("l4.json", data, "kvint2eval/v1"))
    assert adjudicate(data, policy=policy(ALICE), envelope=envelope).outcome == "supported"
    other = adjudicate(data, policy=policy(ALICE, producers=["0" * 64]), envelope=envelope)
    assert (other.reason, other.finding.code) == ("KVINT2_UNTRUSTED", "producer-not-allowed")


# Hostile envelopes


def _edited(change, *keys):
    members = json.loads(signed(*(keys or (ALICE,))))
    change(members)
    return json.dumps(members).encode()


def _swap_payload(members):
    other = build_statement("vector.json", b"another record", "kvint2eval/v2")
    members["payload"] = base64.b64encode(other).decode()


def _both_alphabets(members):
    # 0xfb 0xff is "+/" in one alphabet and "-_" in the other; the payload ends in one of each.
    members["payload"] = base64.b64encode(b"\xfb\xf0\x00").decode().replace("/", "_") + "+_8="


def _stray_bits(members):
    members["payload"] = "QR=="


def _second_row(change):
    def edit(members):
        row = dict(members["signatures"][0])
        change(row)
        members["signatures"].append(row)

    return edit


def _resigned(row):
    # ECDSA signs the same bytes in another way each time.
    fresh = BOB.sign(pre_authentication_encoding(PAYLOAD_TYPE, STATEMENT))
    row["sig"] = base64.b64encode(fresh.value).decode()


def _statement(**members):
    statement = json.loads(STATEMENT) | members
    return signed(ALICE, statement=json.dumps(statement).encode())


HOSTILE = [
    ("envelope-missing", None),
    ("envelope-malformed", b"not JSON"),
    ("envelope-malformed", b"[]"),
    ("envelope-malformed", _edited(lambda members: members.pop("signatures"))),
    ("envelope-malformed", _edited(lambda members: members.update(extra=1))),
    ("envelope-malformed", _edited(lambda members: members.update(payload=7))),
    ("envelope-malformed", _edited(lambda members: members.update(signatures={}))),
    ("envelope-malformed", _edited(lambda members: members["signatures"][0].update(keyid=None))),
    ("envelope-malformed", _edited(lambda members: members["signatures"][0].pop("sig"))),
    ("envelope-malformed", signed(ALICE).replace(b'{"payload"', b'{"payload":"","payload"')),
    ("envelope-payload-type", _edited(lambda members: members.update(payloadType="application/json"))),
    ("envelope-payload-type", _edited(lambda members: members.update(payloadType=PAYLOAD_TYPE.upper()))),
    ("envelope-base64", _edited(_both_alphabets)),
    ("envelope-base64", _edited(_stray_bits)),
    (
        "envelope-base64",
        _edited(lambda members: members.update(payload=members["payload"].rstrip("=") + "*")),
    ),
    ("envelope-base64", _edited(lambda members: members.update(payload="\u00e9"))),
    ("envelope-base64", _edited(lambda members: members.update(payload=members["payload"] + "\n"))),
    ("envelope-base64", _edited(lambda members: members["signatures"][0].update(sig="A"))),
    ("envelope-signatures-empty", _edited(lambda members: members.update(signatures=[]))),
    ("envelope-signatures-empty", _edited(lambda members: members["signatures"][0].update(sig=""))),
    ("envelope-signature-duplicate", _edited(_second_row(dict.copy))),
    ("envelope-signature-duplicate", _edited(_second_row(lambda row: row.update(keyid="another")))),
    ("envelope-key-twice", _edited(_second_row(_resigned), BOB)),
    ("signature-unknown-key", signed(MALLORY)),
    ("signature-invalid", _edited(_swap_payload)),
    ("signature-invalid", _edited(lambda members: members["signatures"][0].update(keyid=BOB.public.keyid))),
    ("signature-invalid", _edited(lambda members: members["signatures"][0].update(sig="AAAA"))),
    ("statement-malformed", signed(ALICE, statement=b"hello")),
    ("statement-malformed", _statement(_type="https://in-toto.io/Statement/v0.1")),
    ("statement-malformed", _statement(predicateType="https://slsa.dev/provenance/v1")),
    ("statement-malformed", _statement(subject=[])),
    ("statement-malformed", _statement(predicate=None)),
    ("statement-malformed", _statement(subject=[{"digest": {"sha512": "0"}}])),
    ("statement-predicate", _statement(predicate={"contract_version": "kvint2eval/v1"})),
    (
        "statement-subject",
        _statement(
            subject=[
                {"name": "a", "digest": {"sha256": sha256_hex(DATA)}},
                {"name": "b", "digest": {"sha256": "0" * 64}},
            ]
        ),
    ),
    ("statement-subject", _statement(subject=[{"name": "vector.json", "digest": {"sha256": "0" * 64}}])),
    (
        "statement-subject",
        signed(ALICE, statement=build_statement("vector.json", DATA + b"\n", "kvint2eval/v2")),
    ),
]


@pytest.mark.parametrize(
    ("expected", "envelope"), HOSTILE, ids=lambda value: value if isinstance(value, str) else ""
)
def test_hostile_envelope_is_refused_with_its_own_code(expected, envelope):
    assert code(envelope) == expected
    verdict = adjudicate(DATA, policy=policy(ALICE, BOB), envelope=envelope)
    assert (verdict.outcome, verdict.reason) == ("unsupported", "KVINT2_UNTRUSTED")
    assert not verdict.canonical


@pytest.mark.parametrize("keyid", ["", "some other id", None], ids=["empty", "other", "absent"])
@pytest.mark.parametrize("key", [ALICE, BOB])
def test_an_id_in_the_envelope_is_a_hint(keyid, key):
    """cosign writes an empty one, and DSSE lets it be absent: every key of the policy is tried."""

    def edit(members):
        for row in members["signatures"]:
            row.pop("keyid")
            if keyid is not None:
                row["keyid"] = keyid

    assert code(_edited(edit, key)) is None
    assert code(_edited(edit, key), MALLORY) == "signature-unknown-key"
    assert code(_edited(edit, ALICE, BOB), threshold=2) is None
    # Under no name does one key count for two.
    twice = _edited(lambda members: (_second_row(_resigned)(members), edit(members)), BOB)
    assert code(twice, threshold=2) == "envelope-key-twice"


def test_what_in_toto_leaves_open_is_read():
    subject = {"name": "x", "digest": {"sha256": sha256_hex(DATA), "sha512": "00"}, "uri": "file:x"}
    assert code(_statement(more=1, subject=[subject, {"digest": subject["digest"]}])) is None
    assert code(_statement(predicate={"contract_version": "kvint2eval/v2", "more": 1})) is None


def test_a_record_in_other_line_ends_is_said():
    text = V1_RECORD.read_bytes()
    envelope = signed(ALICE, statement=build_statement("l4.json", text, "kvint2eval/v1"))
    found = policy(ALICE).verify(text.replace(b"\n", b"\r\n"), envelope)
    assert (found.code, "in LF form the record has it" in found.found) == ("statement-subject", True)


def test_a_fault_of_the_envelope_is_located_in_the_envelope(tmp_path, capfd):
    path = tmp_path / "r.json"
    path.write_bytes(DATA)
    (tmp_path / "r.json.dsse").write_bytes(
        json.dumps(
            json.loads(_edited(lambda members: members["signatures"][0].update(sig="A"))), indent=1
        ).encode()
    )
    write_key_pair(ALICE, tmp_path / "alice")
    (tmp_path / "policy.toml").write_text(
        'format = "kvint2eval-policy/v1"\nthreshold = 1\nexpires = 2999-01-01T00:00:00Z\n[[key]]\npath = "alice.pub"\n'
    )
    judged = ["adjudicate", str(path), "--policy", str(tmp_path / "policy.toml")]
    assert main(judged) == 1
    assert f"where    envelope {path}.dsse /signatures/0/sig, line 7, column 11" in capfd.readouterr().out
    assert main([*judged, "--format", "sarif", "--path-root", str(tmp_path)]) == 0
    (result,) = json.loads(capfd.readouterr().out)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == (
        "r.json.dsse",
        {"startLine": 7, "startColumn": 11},
    )


def test_a_policy_can_require_bound_digests():
    with pytest.raises(PolicyError, match='found require "all", allowed: require = "bound"'):
        policy(ALICE, require="all")
    verdict = adjudicate(DATA, policy=policy(ALICE, require="bound"), envelope=signed(ALICE))
    assert (verdict.reason, verdict.finding.code) == ("KVINT2_UNTRUSTED", "digest-not-bound")
    assert verdict.finding.pointer == "/artifacts"
    assert adjudicate(DATA, require_bound=True).finding.code == "digest-not-bound"
    assert adjudicate(V1_RECORD.read_bytes(), require_bound=True).finding.pointer == "/artifact/sha256"


def test_the_schema_of_the_policy_takes_what_the_reader_takes(tmp_path):
    schema = json.loads((TESTDATA.parent / "kvint2eval/signing/policy.schema.json").read_text())
    check = jsonschema.Draft202012Validator(schema)
    good = {
        "format": "kvint2eval-policy/v1",
        "threshold": 1,
        "expires": datetime(2999, 1, 1, tzinfo=UTC),
        "key": [{"public": ALICE.public.pem.decode()}],
    }
    changes = [
        {},
        {"require": "bound"},
        {"require": "x"},
        {"threshold": 0},
        {"producers": []},
        {"key": []},
        {"keys": 1},
    ]
    for change in changes:
        tables = good | change
        try:
            parse_policy(tables, tmp_path)
            is_read = True
        except PolicyError:
            is_read = False
        assert check.is_valid(tables | {"expires": "2999-01-01T00:00:00Z"}) == is_read, change


def test_threshold_counts_keys_of_the_policy():
    assert code(signed(ALICE), threshold=2) == "signature-threshold"
    assert code(signed(ALICE, MALLORY), threshold=2) == "signature-threshold"
    assert code(signed(ALICE, BOB), threshold=2) is None


def test_one_bad_signature_is_not_outweighed():
    forged = _edited(lambda members: members["signatures"][1].update(sig="AAAA"), ALICE, BOB)
    assert code(forged) == "signature-invalid"


def test_policy_expires():
    end = "2030-01-01T00:00:00+00:00"
    assert code(signed(ALICE), expires=end, now=datetime(2029, 12, 31, 23, 59, tzinfo=UTC)) is None
    assert code(signed(ALICE), expires=end, now=datetime(2030, 1, 1, tzinfo=UTC)) == "policy-expired"


def test_policy_allows_producers():
    digest = json.loads(DATA)["artifacts"][0]["sha256"]
    allowed = adjudicate(DATA, policy=policy(ALICE, producers=[digest]), envelope=signed(ALICE))
    assert allowed.outcome == "supported"
    other = adjudicate(DATA, policy=policy(ALICE, producers=["0" * 64]), envelope=signed(ALICE))
    assert (other.reason, other.finding.code) == ("KVINT2_UNTRUSTED", "producer-not-allowed")


def test_every_code_of_untrusted_is_shown_here():
    codes = {name for name, one in FINDINGS.items() if one.reason == "KVINT2_UNTRUSTED"}
    shown = {expected for expected, _ in HOSTILE} | {
        "signature-threshold",
        "policy-expired",
        "producer-not-allowed",
        "digest-not-bound",
    }
    assert codes == shown


def test_unsigned_bytes_are_not_parsed():
    # Neither the version nor the shape is looked at before the signatures are.
    assert adjudicate(b"\xff", policy=policy(ALICE)).finding.code == "envelope-missing"
    assert adjudicate(b"{}", policy=policy(ALICE)).finding.code == "envelope-missing"


def test_signed_but_malformed_record_is_unsupported_for_what_it_is():
    envelope = signed(ALICE, statement=build_statement("x", b"{}", "none"))
    verdict = adjudicate(b"{}", policy=policy(ALICE), envelope=envelope)
    assert verdict.finding.code == "unknown-contract"
    assert verdict.signers == (ALICE.public.keyid,)


# Envelopes as bytes


def test_envelope_survives_its_text():
    envelope = Envelope(STATEMENT, PAYLOAD_TYPE, (Signature("k", b"\xfb\xff"),))
    assert parse_envelope(dump_envelope(envelope)) == envelope


def test_statement_is_the_documented_one():
    assert json.loads(STATEMENT) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "vector.json", "digest": {"sha256": sha256_hex(DATA)}}],
        "predicateType": "urn:kvint2eval:predicate:record:v1",
        "predicate": {"contract_version": "kvint2eval/v2"},
    }


def test_library_reads_our_envelope():
    library = LibraryEnvelope.from_dict(json.loads(signed(ALICE, BOB)))
    keys = [ALICE.public.library_key, BOB.public.library_key]
    assert set(library.verify(keys, 2)) == {ALICE.public.keyid, BOB.public.keyid}


def test_second_signature_needs_the_same_statement():
    with pytest.raises(SigningError, match="another Statement"):
        sign_statement(STATEMENT + b" ", BOB, signed(ALICE))
    with pytest.raises(SigningError, match="one signature a key"):
        sign_statement(STATEMENT, ALICE, signed(ALICE))


# Policy files


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "kvint2eval-policy/v2"}, "format"),
        ({"threshold": 0}, "threshold 0, allowed: 1 to 1"),
        ({"threshold": 2}, "threshold 2, allowed: 1 to 1"),
        ({"threshold": True}, "threshold True"),
        ({"expires": datetime(2030, 1, 1)}, "offset from UTC"),  # noqa: DTZ001  # what is refused
        ({"expires": "2030"}, "expires '2030'"),
        ({"producers": []}, "producers"),
        ({"producers": ["A" * 64]}, "producers"),
        ({"key": []}, "found no key"),
        ({"key": [{"public": "x"}]}, "key 1: found no PEM public key"),
        ({"key": [{"name": "x"}]}, "key 1: found neither of path and public"),
        ({"key": [{"path": "../x.pub"}]}, "key 1: found path"),
        ({"key": [{"path": "absent.pub"}]}, "key 1: .*absent.pub"),
        ({"key": ["x"]}, "key 1: found 'x', allowed: a table"),
        ({"key": [{"colour": "x"}]}, "key 1: found colour"),
        ({"keys": []}, "found key 'keys', allowed"),
    ],
)
def test_wrong_policy_is_refused(tmp_path, change, message):
    tables = {
        "format": "kvint2eval-policy/v1",
        "threshold": 1,
        "expires": datetime(2999, 1, 1, tzinfo=UTC),
        "key": [{"public": ALICE.public.pem.decode()}],
    }
    with pytest.raises(PolicyError, match=message):
        parse_policy(tables | change, tmp_path)


def test_key_that_stands_twice_in_a_policy_is_refused():
    with pytest.raises(PolicyError, match=r"key 2: found .* twice, allowed: each key once"):
        policy(ALICE, ALICE)


@pytest.mark.parametrize("data", [b"\xff", b"format = ", b'format = "x"'])
def test_wrong_policy_file_is_refused(tmp_path, data):
    path = tmp_path / "policy.toml"
    path.write_bytes(data)
    with pytest.raises(PolicyError, match=r"policy .*policy\.toml"):
        read_policy(path)
    with pytest.raises(PolicyError, match="policy"):
        read_policy(tmp_path / "absent.toml")


def test_key_of_another_kind_is_refused():
    wrong = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    with pytest.raises(SigningError, match="allowed: Ed25519 or ECDSA P-256"):
        PublicKey(wrong)
    with pytest.raises(SigningError, match="allowed: Ed25519 or ECDSA P-256"):
        PublicKey(ec.generate_private_key(ec.SECP384R1()).public_key())


# Key files and commands


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_key_file_is_its_owners_alone(tmp_path, algorithm):
    old = os.umask(0)
    try:
        public = write_key_pair(generate_key(algorithm), tmp_path / "key")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert read_private_key(tmp_path / "key").public.pem == public.read_bytes()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o700 | 0o001])
def test_key_file_that_others_can_read_is_refused(tmp_path, mode):
    write_key_pair(ALICE, tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(SigningError, match="allowed: 0600"):
        read_private_key(tmp_path / "key")


def test_key_is_never_overwritten(tmp_path):
    write_key_pair(ALICE, tmp_path / "key")
    with pytest.raises(SigningError, match="allowed: a new name"):
        write_key_pair(BOB, tmp_path / "key")
    with pytest.raises(SigningError, match=r"key .*absent"):
        write_key_pair(BOB, tmp_path / "absent/key")


@pytest.mark.parametrize("key", [ed25519.Ed25519PrivateKey.generate(), None])
def test_wrong_key_file_is_refused(tmp_path, key):
    path = tmp_path / "key"
    text = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) if key else b"x"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(SigningError, match="no unencrypted PEM private key"):
        read_private_key(path)
    wrong = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(wrong.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(SigningError, match="allowed: Ed25519 or ECDSA P-256"):
        read_private_key(path)


def test_unknown_algorithm_is_refused():
    with pytest.raises(SigningError, match="allowed: ed25519, ecdsa-p256"):
        generate_key("rsa")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(RECORD, "record.json")
    for name, algorithm in (("alice", "ed25519"), ("bob", "ecdsa-p256")):
        assert main(["keygen", name, "--algorithm", algorithm]) == 0
    Path("policy.toml").write_text(
        'format = "kvint2eval-policy/v1"\nthreshold = 2\nexpires = 2999-01-01T00:00:00Z\n'
        '[[key]]\npath = "alice.pub"\n[[key]]\npath = "bob.pub"\n'
    )
    return tmp_path


def test_example_of_the_page_works(tmp_path, monkeypatch, capfd):
    page = (TESTDATA.parent / "docs/reference/contract-v2.md").read_text()
    monkeypatch.chdir(tmp_path)
    Path("policy.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    Path("records").mkdir()
    shutil.copy(RECORD, "records/run.json")
    commands = page.partition("```console\n$ kvint2eval keygen")[2].partition("```")[0]
    for line in ("keygen" + commands).splitlines():
        assert main(line.removeprefix("$ kvint2eval ").split()) == 0
    assert "signed by 1 trusted" in capfd.readouterr().out


def test_commands_from_key_to_verdict(folder, capfd):
    judged = ["adjudicate", "record.json", "--policy", "policy.toml"]
    assert main(judged) == 1
    assert main(["sign", "record.json", "--key", "alice"]) == 0
    assert main(["verify", "record.json", "--policy", "policy.toml"]) == 1
    assert "signature-threshold" in capfd.readouterr().out
    shutil.move("record.json", "renamed.json")
    shutil.move("record.json.dsse", "renamed.json.dsse")
    assert main(["sign", "renamed.json", "--key", "bob"]) == 0
    assert main(["verify", "renamed.json", "--policy", "policy.toml"]) == 0
    assert capfd.readouterr().out.count("trusted    renamed.json  signed by") == 1
    assert main(["adjudicate", "renamed.json", "--policy", "policy.toml"]) == 0
    assert "signed by 2 trusted" in capfd.readouterr().out
    assert main(["adjudicate", "renamed.json", "--policy", "policy.toml", "--format", "jsonl"]) == 0
    assert len(json.loads(capfd.readouterr().out)["signers"]) == 2
    assert folder.is_dir()


def test_lines_have_no_envelope(folder, capfd):
    Path("records.jsonl").write_bytes(json.dumps(json.loads(DATA)).encode() + b"\n")
    assert main(["adjudicate", "records.jsonl", "--policy", "policy.toml", "--format", "jsonl"]) == 1
    assert json.loads(capfd.readouterr().out)["finding"]["code"] == "envelope-missing"
    assert folder.is_dir()


@pytest.mark.parametrize(
    "command",
    [
        ["sign", "absent.json", "--key", "alice"],
        ["sign", "record.json", "--key", "absent"],
        ["sign", "record.json", "--key", "alice.pub"],
        ["sign", "policy.toml", "--key", "alice"],
        ["keygen", "alice"],
        ["verify", "record.json", "--policy", "absent.toml"],
        ["verify", "absent.json", "--policy", "policy.toml"],
        ["adjudicate", "record.json", "--policy", "alice.pub"],
        ["adjudicate", "record.json", "--root", "absent"],
    ],
)
def test_wrong_usage_ends_with_a_message(folder, capsys, command):
    assert main(command) == 2
    assert capsys.readouterr().err.count("kvint2eval: error: ") == 1
    assert folder.is_dir()


def test_envelope_of_another_record_is_not_extended(folder, capsys):
    assert main(["sign", "record.json", "--key", "alice"]) == 0
    Path("record.json").write_bytes(DATA + b"\n")
    assert main(["sign", "record.json", "--key", "bob"]) == 2
    assert "statement-subject" in capsys.readouterr().err
    Path("record.json.dsse").write_bytes(b"x")
    assert main(["sign", "record.json", "--key", "bob"]) == 2
    assert folder.is_dir()
