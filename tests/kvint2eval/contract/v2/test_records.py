"""Every record of testdata/records/v2 gives exactly the verdict that the manifest says, and its twin is accepted."""

import json
from pathlib import Path

import pytest

from kvint2eval.codes import FINDINGS, REASONS, Outcome
from tests.tools.mutants import campaign

TESTDATA = Path(__file__).resolve().parents[4] / "testdata"
ROWS = campaign.manifest()

# Findings that need a policy: tests/kvint2eval/signing/test_policy.py.
_WITH_POLICY = {code for code, one in FINDINGS.items() if one.reason == "KVINT2_UNTRUSTED"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["path"])
def test_record_gives_its_finding_and_no_other(row):
    verdict = campaign.judge(row)
    assert (verdict.outcome, verdict.reason) == (row["outcome"], row["reason"])
    assert (verdict.finding and verdict.finding.code) == row["finding"]
    assert (verdict.contract == "v2") == (
        row["reason"] not in ("KVINT2_MALFORMED_RECORD", "KVINT2_UNKNOWN_CONTRACT")
    )


@pytest.mark.parametrize("row", [row for row in ROWS if row["finding"]], ids=lambda row: row["path"])
def test_finding_says_found_allowed_and_where(row):
    finding = campaign.judge(row).finding
    assert finding.found
    assert finding.allowed
    assert finding.line is not None


@pytest.mark.parametrize("row", [row for row in ROWS if row["twin"]], ids=lambda row: row["path"])
def test_twin_is_supported(row):
    twin = next(one for one in ROWS if one["path"] == row["twin"])
    assert campaign.judge(twin).outcome is Outcome.SUPPORTED


def test_every_code_of_v2_has_a_record():
    have = {row["finding"] for row in ROWS}
    assert {code for code, one in FINDINGS.items() if set(one.steps) == {"v2"}} - _WITH_POLICY <= have


def test_every_reason_of_v2_has_two_records():
    reasons = [row["reason"] for row in ROWS]
    of_v2 = {one.reason for one in FINDINGS.values() if set(one.steps) == {"v2"}} - {"KVINT2_UNTRUSTED"}
    assert {reason for reason in of_v2 if reasons.count(reason) < 2} == set()


def test_folder_holds_what_the_manifest_lists():
    listed = {row["path"] for row in ROWS}
    found = {
        str(path.relative_to(TESTDATA / "records/v2")) for path in (TESTDATA / "records/v2").rglob("*.json")
    }
    assert found == listed


def test_no_rule_survives_its_absence():
    assert campaign.survivors() == []


def test_outcome_follows_from_reason():
    assert all(
        REASONS[FINDINGS[row["finding"]].reason].outcome == row["outcome"] for row in ROWS if row["finding"]
    )


def test_refused_claim_leaves_the_other_one():
    row = next(one for one in ROWS if one["path"] == "supported/one-claim-refused.json")
    verdict = campaign.judge(row)
    fates = [claim.finding and claim.finding.code for claim in verdict.claims]
    assert fates == [None, "claim-no-effect"]
    assert [claim["metric"] for claim in verdict.echo["claims"]] == ["output_nmse"]


def test_no_figures_in_the_echo_of_a_record_that_is_not_supported():
    for row in ROWS:
        verdict = campaign.judge(row)
        if verdict.outcome is not Outcome.SUPPORTED:
            assert not {"measurements", "claims"} & set(verdict.echo)
            assert verdict.record is None


def test_record_of_a_supported_verdict_is_the_record():
    data = (TESTDATA / "records/v2/supported/escapes.json").read_bytes()
    verdict = campaign.judge(next(one for one in ROWS if one["path"] == "supported/escapes.json"))
    assert json.loads(verdict.record.model_dump_json()) == json.loads(data)
