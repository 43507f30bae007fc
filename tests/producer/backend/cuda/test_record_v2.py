"""A v2 record made by the kernels is sound, and NumPy derives it again."""

import dataclasses

from kvint2eval import adjudicate
from producer.backend.cpu import NumpyBackend
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PAIRED, SliceSpec
from producer.record.reading import parse_record
from producer.record.rederive_v2 import rederive_v2
from producer.record.v2 import record_v2_text
from producer.record.v2_slice import build_record_v2

SMALL = SliceSpec(seq_len=96, num_kv_heads=2, output_dim=16, seed=11)
SHORT = dataclasses.replace(PAIRED, calibration_queries=8, evaluation_queries=24, num_rotations=2)


def _silent(done, total, what):
    pass


def test_record_of_the_kernels_is_sound_and_derived_again_by_numpy(kernel_backend):
    result = run_protocol(SMALL, SHORT, kernel_backend, null_check=True, keeps_errors=True)
    record = build_record_v2(result, kernel_backend)
    verdict = adjudicate(record_v2_text(record).encode())
    if kernel_backend.runtime.name == "cuda":
        assert verdict.outcome == "supported"
        assert record["protocol"]["clock"] == "cuda-event"
    else:
        assert (verdict.outcome, verdict.finding.code) == ("delegate", "environment-not-cuda")
    assert [claim.finding for claim in verdict.claims] == [None]
    # A trial can rest on scores above 100, where float32 itself allows 5e-5: test_protocols says so.
    done = rederive_v2(parse_record(record_v2_text(record).encode()), NumpyBackend(1), _silent)
    wrong = [each for each in done.rederived if not each.agrees]
    assert [each for each in wrong if each.difference is None or each.difference > 5e-5] == []
