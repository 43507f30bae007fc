"""Law: whatever the trace, its record breaks no rule but one of the data: CUDA, or a clip optimum at a grid end."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kvint2eval import adjudicate
from kvint2eval.contract.v2.registry import DIALECTS, ONE_GROUP_A_ROW
from producer.experiment.trace.arm_protocol import TraceProtocol
from producer.experiment.trace.compare_arms import compare_arms
from producer.record.v2_trace import build_trace_record, trace_record_text
from tests.producer import made_traces as made

# 64 quantized tokens, so that KIVI's groups of any of these sizes are filled.
SINK, RECENT, TOKENS = 8, 56, 128
# A name that was given up is still read, but not written.
PRODUCED = DIALECTS.keys() - {"quarot-token"}
# 224 quantized tokens, so that KIVI's groups of any of these sizes are filled, and float32 windows stay small.
SINK, RECENT, TOKENS = 4, 28, 256


@st.composite
def _protocols(draw):
    dialect = draw(st.sampled_from(sorted(PRODUCED)))
    entry = DIALECTS[dialect]
    # Groups of 16 with two float32 scalars are 6 bits a value, which no record may call 2.
    is_small = entry["metadata_scalars"] * (4 if entry["metadata_dtype"] == "float32" else 2) <= 4
    size = draw(st.sampled_from([16, 32])) if is_small and dialect not in ONE_GROUP_A_ROW else 32
    grid = (1.0,) if DIALECTS[dialect]["clip_kind"] == "none" else (1.0, 0.85, 0.7, 0.5, 0.3)
    arms = draw(st.permutations(["identity", "quarot", "oscar"]))[: draw(st.integers(2, 3))]
    return TraceProtocol(
        arms=tuple(arms),
        dialect=dialect,
        clip_grid=grid,
        center_keys=draw(st.booleans()),
        group_size=size,
        sink=SINK,
        recent=RECENT,
        window_dtype=draw(st.sampled_from(["float32", "float16", "bfloat16"])),
    )


@given(_protocols(), st.integers(0, 10**6), st.floats(1, 20))
@settings(max_examples=25, deadline=None)
def test_a_record_of_a_trace_is_sound(protocol, seed, scale):
    with tempfile.TemporaryDirectory() as folder:
        calibration = made.memory_trace(Path(folder, "c"), seed, sequences=1, tokens=TOKENS, scale=scale)
        evaluation = made.memory_trace(Path(folder, "e"), seed + 500, sequences=6, tokens=TOKENS, scale=scale)
        (found,) = compare_arms(
            protocol, calibration, evaluation, [0], processes=1, progress=lambda _done, _total, _what: None
        )
        record = build_trace_record(protocol, found, calibration, evaluation)
    verdict = adjudicate(trace_record_text(record).encode())
    chosen = [found.arms[place].clip_ratio for place in (0, found.selected)]
    at_end = len(protocol.clip_grid) > 1 and any(one in protocol.clip_grid[::4] for one in chosen)
    assert verdict.finding.code == ("clip-at-grid-end" if at_end else "environment-not-cuda")
    assert all(claim.finding is None for claim in verdict.claims or ())
