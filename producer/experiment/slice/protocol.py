"""The slice protocol: search, selection and evaluation of all candidates of a slice.

Nothing here knows how a backend computes, and nothing here prints.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from producer.backend.key_outputs import key_outputs
from producer.experiment.slice.clip_search import ClipCurve, ClipSearch
from producer.experiment.slice.rotations import build_candidates, rotated_output
from producer.experiment.slice.synthetic import RESIDENT_BYTES, build_slice
from producer.numerics.bootstrap import BOOTSTRAP_STREAM_KEY, Interval, Summary, paired_bootstrap, summarize
from producer.numerics.nmse import TrialErrors, split_errors
from producer.quantize.steps import require_group_size
from producer.system.processes import fork_map
from producer.system.progress import Progress, no_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.backend.base import Backend, PackedCache, RotatedCache
    from producer.experiment.slice.spec import OutputRotation, SliceProtocol, SliceSpec
    from producer.numerics.arrays import Float32Array
    from producer.transform import Rotation

__all__ = ["Arm", "ProtocolRun", "RunResult", "run_and_keep", "run_protocol", "select"]


@dataclass(slots=True, kw_only=True)
class Arm:
    """One candidate with all that was measured of it.

    Attributes
    ----------
    index : int
        0 is the identity.
    rotation : Rotation
    curve : ClipCurve
        Calibration objective over clip ratios.
    clip_ratio : float
        The ratio that was evaluated.
    calibration_ms : float
        Wall time of rotation, clip search, quantization and packing.
    null_nmse : float or None
        Largest NMSE of a calibration query when the rotation is applied without quantization.
    queries_sha256 : str
        Digest of the float32 bytes of the evaluation queries that this arm saw.
    nmse : list of float
        By evaluation query.
    decode_us, host_decode_us : list of float
        Time by evaluation query of attention over the packed cache and W_O: where it runs, and on the host with
        the query's rotation; see `producer.backend.base.Decoded`.
    code_bytes, scale_bytes : int
        Bytes of the stored codes and scales, counted from the arrays.
    calibration_nmse : list of list of float
        By clip ratio of the curve and calibration query.
    errors : TrialErrors or None
        The squared errors of the evaluation and their split; None where a run does not keep them.
    """

    index: int
    rotation: Rotation
    curve: ClipCurve = field(default_factory=ClipCurve)
    clip_ratio: float = 0.0
    calibration_ms: float = 0.0
    null_nmse: float | None = None
    queries_sha256: str = ""
    nmse: list[float] = field(default_factory=list)
    decode_us: list[float] = field(default_factory=list)
    host_decode_us: list[float] = field(default_factory=list)
    code_bytes: int = 0
    scale_bytes: int = 0
    calibration_nmse: list[list[float]] = field(default_factory=list)
    errors: TrialErrors | None = None

    @property
    def nmse_summary(self) -> Summary:
        """Mean and population deviation of the NMSE."""
        return summarize(self.nmse)

    @property
    def decode_summary(self) -> Summary:
        """Mean and population deviation of the decode time, in µs."""
        return summarize(self.decode_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run of a protocol found.

    Attributes
    ----------
    spec : SliceSpec
    protocol : SliceProtocol
    arms : list of Arm
        In the order of their indices.
    selected : int
        Index of the selected rotation.
    grid : list of float
        All clip ratios that were searched.
    grid_extended_by : list of float
        Those of them that were added because an optimum was the last ratio.
    differences : list of Interval or None
        For every arm the paired difference baseline - arm of the NMSE; None for the baseline, and for all when
        the protocol takes no bootstrap or its arms saw different queries.
    """

    spec: SliceSpec
    protocol: SliceProtocol
    arms: list[Arm]
    selected: int
    grid: list[float]
    grid_extended_by: list[float]
    differences: list[Interval | None]

    def quality(self, arm: Arm) -> Summary:
        """Return mean and deviation of the one-bit quality of an arm: NMSE below the protocol's threshold."""
        return summarize([float(self.passes(value)) for value in arm.nmse])

    def passes(self, nmse: float) -> bool:
        """Return whether a trial's NMSE passes the quality check."""
        limit = self.protocol.quality_threshold
        return nmse < limit or (self.protocol.quality_inclusive and nmse == limit)


def select(protocol: SliceProtocol, calibration: Sequence[float], evaluation: Sequence[float]) -> int:
    """Return the index of the selected rotation.

    Parameters
    ----------
    protocol : SliceProtocol
    calibration : sequence of float
        Best calibration objective of every arm, the baseline first.
    evaluation : sequence of float
        Mean NMSE over the evaluation queries of every arm.

    Returns
    -------
    int
        1 or above: the baseline is never selected. The first of equals.
    """
    read = evaluation if protocol.selection == "evaluation" else calibration
    return min(range(1, len(read)), key=lambda index: read[index])


class ProtocolRun:
    """The state of a run: what `run_protocol` works on, and what an audit asks further questions of.

    Parameters
    ----------
    spec : SliceSpec
    protocol : SliceProtocol
    backend : Backend
    resident_bytes : int
        See `producer.experiment.slice.synthetic.build_slice`.
    keeps_errors : bool
        Whether the evaluation also splits the squared error of every trial.

    Attributes
    ----------
    arms : list of Arm
    search : ClipSearch
    calibration_reference : float32, shape (calibration_queries, output_dim)
        Outputs of the plain attention.
    evaluation_reference : list of float32, shape (evaluation_queries, output_dim)
        The same, by arm.
    """

    def __init__(
        self,
        spec: SliceSpec,
        protocol: SliceProtocol,
        backend: Backend,
        resident_bytes: int,
        *,
        keeps_errors: bool = False,
    ) -> None:
        self.protocol = protocol
        self.keeps_errors = keeps_errors
        self.backend = backend
        self.slice = build_slice(spec, resident_bytes)
        self.search = ClipSearch(protocol.clips)
        candidates = build_candidates(protocol, spec.seed, spec.head_dim)
        self.arms = [Arm(index=index, rotation=rotation) for index, rotation in enumerate(candidates)]
        self.calibration = self.slice.draw_queries(protocol.calibration_queries)
        # Drawn in advance: no draw depends on a result, so the stream is the same as if each candidate drew
        # its queries after its search.
        if protocol.shared_evaluation:
            self.evaluation = [self.slice.draw_queries(protocol.evaluation_queries)] * len(self.arms)
        else:
            self.evaluation = [self.slice.draw_queries(protocol.evaluation_queries) for _ in self.arms]
        self.calibration_reference, self.evaluation_reference = self._references()
        self.spare: RotatedCache | None = None

    def _references(self) -> tuple[Float32Array, list[Float32Array]]:
        """Return the outputs of the plain attention for calibration and evaluation queries."""
        distinct = self.evaluation[:1] if self.protocol.shared_evaluation else self.evaluation
        plain = self.backend.rotate(self.slice.source, self.arms[0].rotation)
        queries = np.concatenate([self.calibration, *distinct])
        outputs = self.backend.project(self.backend.attend_float(plain, queries), self.slice.w_o)
        first = self.protocol.calibration_queries
        parts = np.split(outputs[first:], len(distinct))
        return outputs[:first], parts * (len(self.arms) // len(parts))

    def search_arm(self, arm: Arm) -> None:
        """Search the clip ratios that the arm lacks; evaluate the arm when its best ratio is new."""
        start = time.perf_counter()
        backend, group_size = self.backend, self.protocol.group_size
        cache = self._rotate(arm)
        w_o = rotated_output(arm.rotation, self.slice.w_o, self.protocol.output_rotation)
        self.search.complete(
            arm.curve, lambda ratios: self._objectives(cache, w_o, ratios, arm.calibration_nmse)
        )
        if arm.curve.best_ratio == arm.clip_ratio:
            arm.calibration_ms += 1e3 * (time.perf_counter() - start)
            return
        arm.clip_ratio = arm.curve.best_ratio
        packed = backend.quantize_pack(cache, arm.clip_ratio, group_size)
        arm.calibration_ms += 1e3 * (time.perf_counter() - start)
        arm.code_bytes, arm.scale_bytes = packed.code_bytes, packed.scale_bytes
        arm.nmse, arm.decode_us, arm.host_decode_us = [], [], []
        queries, references = self.evaluation[arm.index], self.evaluation_reference[arm.index]
        arm.queries_sha256 = hashlib.sha256(queries.tobytes()).hexdigest()
        outputs = []
        for index in range(len(queries)):
            decoded = backend.decode(packed, queries[index : index + 1], w_o)
            arm.decode_us.append(decoded.decode_us)
            arm.host_decode_us.append(decoded.host_us)
            arm.nmse += backend.nmse(decoded.outputs, references[index : index + 1]).tolist()
            outputs.append(decoded.outputs)
        if self.keeps_errors:
            heads = self._key_outputs(arm, packed, cache, queries)
            arm.errors = split_errors(np.concatenate(outputs), backend.project(heads, w_o), references)

    def _key_outputs(
        self, arm: Arm, packed: PackedCache, cache: RotatedCache, queries: Float32Array
    ) -> Float32Array:
        """Return head outputs that read packed keys and float values: only the keys are quantized."""
        source, coding = (self.slice.source, arm.rotation), (arm.clip_ratio, self.protocol.group_size)
        return key_outputs(self.backend, packed, cache, queries, source, coding)

    def _rotate(self, arm: Arm) -> RotatedCache:
        """Return the cache rotated for an arm, in the memory of the one before."""
        self.spare = self.backend.rotate(self.slice.source, arm.rotation, self.spare)
        return self.spare

    def _objectives(
        self,
        cache: RotatedCache,
        w_o: Float32Array,
        ratios: Sequence[float],
        rows: list[list[float]] | None = None,
    ) -> list[float]:
        """Return the calibration objective of clip ratios: the mean NMSE over the calibration queries.

        The NMSE of every query is added to `rows`, a list a ratio.
        """
        backend = self.backend
        heads = backend.search_clips(cache, self.calibration, ratios, self.protocol.group_size)
        errors = [
            backend.nmse(backend.project(each, w_o), self.calibration_reference).tolist() for each in heads
        ]
        if rows is not None:
            rows += errors
        return [summarize(each).mean for each in errors]

    def objectives(self, arm: Arm, ratios: Sequence[float]) -> list[float]:
        """Return an arm's calibration objective at any clip ratios."""
        w_o = rotated_output(arm.rotation, self.slice.w_o, self.protocol.output_rotation)
        return self._objectives(self._rotate(arm), w_o, ratios)

    def null_nmse(self, arm: Arm, output_rotation: OutputRotation) -> float:
        """Return what the rotation alone does to the output: the largest NMSE of a calibration query."""
        w_o = rotated_output(arm.rotation, self.slice.w_o, output_rotation)
        outputs = self.backend.project(self.backend.attend_float(self._rotate(arm), self.calibration), w_o)
        return float(self.backend.nmse(outputs, self.calibration_reference).max())


def run_protocol(
    spec: SliceSpec,
    protocol: SliceProtocol,
    backend: Backend,
    *,
    progress: Progress = no_progress,
    null_check: bool | None = None,
    resident_bytes: int = RESIDENT_BYTES,
    keeps_errors: bool = False,
) -> RunResult:
    """Return what a protocol finds on a slice.

    Parameters
    ----------
    spec : SliceSpec
    protocol : SliceProtocol
    backend : Backend
    progress : callable
        Told after every step.
    null_check : bool, optional
        Whether each rotation is also run without quantization; by default where the grid extends, so not in
        the published protocol.
    resident_bytes : int
        See `producer.experiment.slice.synthetic.build_slice`.
    keeps_errors : bool
        Whether every trial's squared error is kept with its split: what a record of contract v2 holds.

    Raises
    ------
    SpecError
        If the group size does not divide head_dim, or head_dim has not so many rotations.
    SearchError
        If an extending grid finds no optimum inside.

    Notes
    -----
    All arms are searched over one grid: a ratio that one arm needed is searched for all.
    """
    run, result = run_and_keep(
        spec,
        protocol,
        backend,
        progress=progress,
        null_check=null_check,
        resident_bytes=resident_bytes,
        keeps_errors=keeps_errors,
    )
    del run
    return result


def run_and_keep(
    spec: SliceSpec,
    protocol: SliceProtocol,
    backend: Backend,
    *,
    progress: Progress = no_progress,
    null_check: bool | None = None,
    resident_bytes: int = RESIDENT_BYTES,
    keeps_errors: bool = False,
) -> tuple[ProtocolRun, RunResult]:
    """Return the run with its result, for further questions; see `run_protocol`."""
    require_group_size(spec.head_dim, protocol.group_size)
    total = protocol.num_rotations + 2
    progress(0, total, "slice")
    run = ProtocolRun(spec, protocol, backend, resident_bytes, keeps_errors=keeps_errors)
    checks_null = protocol.clips.extend if null_check is None else null_check
    process, done = os.getpid(), 0

    def work(arm: Arm) -> Arm:
        nonlocal done
        # A child's progress is not the run's.
        if os.getpid() == process:
            done = max(done, arm.index + 1)
            progress(done, total, f"rotation {arm.index}")
        run.search_arm(arm)
        if checks_null and arm.null_nmse is None:
            arm.null_nmse = run.null_nmse(arm, protocol.output_rotation)
        return arm

    # The baseline needs the longest grid as a rule, so it goes first where grids grow.
    waiting = [run.arms[:1], run.arms[1:]] if protocol.clips.extend else [run.arms]
    while waiting:
        for arm in fork_map(work, waiting.pop(0), backend.workers):
            run.arms[arm.index] = arm
            run.search.adopt(arm.curve)
        behind = [arm for arm in run.arms if len(arm.curve.ratios) < len(run.search.ratios)]
        if behind and not waiting:
            waiting = [behind]
    progress(total, total, "done")
    result = RunResult(
        spec=spec,
        protocol=protocol,
        arms=run.arms,
        selected=select(
            protocol,
            [arm.curve.best_objective for arm in run.arms],
            [arm.nmse_summary.mean for arm in run.arms],
        ),
        grid=list(run.search.ratios),
        grid_extended_by=run.search.extended_by,
        differences=_differences(spec, protocol, run.arms),
    )
    return run, result


def _differences(spec: SliceSpec, protocol: SliceProtocol, arms: list[Arm]) -> list[Interval | None]:
    """Return the paired differences to the baseline, where arms are paired."""
    if not (protocol.bootstrap_resamples and protocol.shared_evaluation):
        return [None] * len(arms)
    intervals = [
        paired_bootstrap(
            arms[0].nmse,
            arm.nmse,
            resamples=protocol.bootstrap_resamples,
            seed=spec.seed ^ BOOTSTRAP_STREAM_KEY,
        )
        for arm in arms[1:]
    ]
    return [None, *intervals]
