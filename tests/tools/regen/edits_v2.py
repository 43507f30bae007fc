"""What each refused record of testdata/records/v2 has that its twin has not, sorted by step.

A row is: finding, slug, changes, how it differs, and whether nothing but the finding's rule refuses it. Changes are
pointers with new values, or a function of the record. Every record is sealed again after the change, so the lies are
consistent as far as the witness goes.
"""

from typing import Any

from tests.tools.regen.vector_v2 import (
    CALIBRATION_SEQUENCES,
    EVALUATION_SEQUENCES,
    GRID,
    claim,
    nmse,
    storage,
    summarized,
    traced,
    vector,
)

Record = dict[str, Any]

_ARMS = "/measurements/arms"
_REMOVE: Any = object()


def reclaimed(record: Record) -> Record:
    """A record with the claims that its trials give, and their summaries."""
    for arm in record["measurements"]["arms"]:
        summarized(arm)
    record["claims"] = [claim(record, one["metric"]) for one in record["claims"]]
    return record


def _trials(record: Record, arm: int) -> dict[str, list[Any]]:
    trials: dict[str, list[Any]] = record["measurements"]["arms"][arm]["trials"]
    return trials


def _bits_4(record: Record) -> Record:
    record["recipe"]["bits"] = 4
    stored = record["measurements"]["storage"]
    stored["codes_bytes"] *= 2
    total = stored["codes_bytes"] + stored["metadata_bytes"] + stored["window_bytes"]
    stored["bits_per_element"] = 8 * total / (2 * 1024 * 4 * 128)
    return record


def _scaled(factor: float, *arms: int, kept: slice = slice(None)):
    """All errors of some arms so many times as large, and some of the claims."""

    def change(record: Record) -> Record:
        record["claims"] = record["claims"][kept]
        for arm in arms:
            trials = _trials(record, arm)
            for name in ("numerator", "key_part", "value_part", "cross_part"):
                trials[name] = [factor * value for value in trials[name]]
            trials["nmse"] = [
                nmse(*pair) for pair in zip(trials["numerator"], trials["denominator"], strict=True)
            ]
        return reclaimed(record)

    return change


def _crossed(arm: int, key: float, value: float):
    """Parts of a trial that add up to its numerator, as shares of it: the cross part is what is left."""

    def change(record: Record) -> Record:
        columns = _trials(record, arm)
        whole = columns["numerator"][0]
        columns["key_part"][0], columns["value_part"][0] = key * whole, value * whole
        columns["cross_part"][0] = whole - key * whole - value * whole
        return record

    return change


def _shrunk(factor: float, trials: range):
    """Trials whose figures are so many times as large: their quotients stay."""

    def change(record: Record) -> Record:
        for arm in range(3):
            columns = _trials(record, arm)
            for index in trials:
                for name in ("numerator", "denominator", "key_part", "value_part", "cross_part"):
                    columns[name][index] *= factor
                columns["nmse"][index] = nmse(columns["numerator"][index], columns["denominator"][index])
        return reclaimed(record)

    return change


def _copied(factor: float):
    """The last trial as the one before it, with figures so many times as large."""

    def change(record: Record) -> Record:
        for arm in range(3):
            columns = _trials(record, arm)
            for name in ("numerator", "denominator", "key_part", "value_part", "cross_part"):
                columns[name][7] = columns[name][6] * factor
            columns["nmse"][7] = nmse(columns["numerator"][7], columns["denominator"][7])
        return reclaimed(record)

    return change


def _windows(recent: int, dtype: str = "bfloat16"):
    """Other windows, stored as such."""

    def change(record: Record) -> Record:
        record["recipe"] |= {"recent_tokens": recent, "window_dtype": dtype}
        stored = storage(1024, 4, 128, sinks=64 + recent)
        stored["window_bytes"] *= 1 if dtype == "bfloat16" else 2
        return _measured(record, stored)

    return change


def _measured(record: Record, stored: dict[str, Any]) -> Record:
    total = stored["codes_bytes"] + stored["metadata_bytes"] + stored["window_bytes"]
    stored["bits_per_element"] = 8 * total / (2 * 1024 * 4 * 128)
    record["measurements"]["storage"] = stored
    return record


def _groups(size: int, recent: int):
    """Smaller groups, stored as such, without sinks."""

    def change(record: Record) -> Record:
        record["recipe"] |= {"group_size": size, "sink_tokens": 0, "recent_tokens": recent}
        stored = storage(1024, 4, 128, sinks=recent)
        stored["metadata_bytes"] *= 128 // size
        return _measured(record, stored)

    return change


def _calibrated_on_trials(*arms: int):
    """The first calibration query is the trial with the least error."""

    def change(record: Record) -> Record:
        for arm in arms:
            search = record["measurements"]["arms"][arm]["calibration"]
            row = search["objective"].index(min(search["objective"]))
            search["query_nmse"][row][0] = min(_trials(record, arm)["nmse"])
            search["objective"][row] = sum(search["query_nmse"][row]) / len(search["query_nmse"][row])
        return record

    return change


def _preferred(factor: float):
    """A baseline whose calibration errors are so many times as large."""

    def change(record: Record) -> Record:
        search = record["measurements"]["arms"][0]["calibration"]
        search["query_nmse"] = [[factor * value for value in row] for row in search["query_nmse"]]
        search["objective"] = [sum(row) / len(row) for row in search["query_nmse"]]
        return record

    return change


def _sequences(evaluation: list[str], calibration: list[str]):
    """A record of a trace with these ids."""

    def change(record: Record) -> Record:
        return traced(record, evaluation, calibration)

    return change


def _both_origins(record: Record) -> Record:
    synthetic = record["workload"]["synthetic"]
    record = traced(record, EVALUATION_SEQUENCES)
    record["workload"]["synthetic"] = synthetic
    return record


def _twice(**members: Any):
    """The first claim once more, with another interval."""

    def change(record: Record) -> Record:
        record["claims"].append(claim(record, **members))
        return record

    return change


def _carried(count: int, few: int):
    """Times that are shorter in a few trials by much, and longer in the others."""

    def change(_: Record) -> Record:
        record = vector(count)
        first, second = _trials(record, 0)["decode_us"], _trials(record, 1)["decode_us"]
        for index in range(count):
            first[index] = 40.0 + index / 100
            second[index] = first[index] + (0.01 if index >= few else -9.0)
        for arm in record["measurements"]["arms"]:
            summarized(arm)
        record["claims"] = [claim(record, "decode_us", level=0.9)]
        return record

    return change


def _timed(**members: Any):
    """A claim of speed alone, timed otherwise."""

    def change(record: Record) -> Record:
        record["protocol"] |= members
        record["claims"] = record["claims"][1:]
        return record

    return change


def _grid(ratios: list[float], kept: slice = slice(None)):
    """The clip grid with other labels, or a part of it."""

    def change(record: Record) -> Record:
        record["recipe"]["clip_grid"] = ratios
        record["recipe"]["clip_grid_size"] = len(ratios)
        for arm in record["measurements"]["arms"]:
            search = arm["calibration"]
            search["clip_ratio"] = ratios
            search["objective"] = search["objective"][kept]
            search["query_nmse"] = search["query_nmse"][kept]
            arm["clip_ratio"] = ratios[search["objective"].index(min(search["objective"]))]
        return record

    return change


def _column(arm: int, name: str, trial: int, value: Any):
    """One figure of one trial, with the summaries and claims that follow from it."""

    def change(record: Record) -> Record:
        column = _trials(record, arm)[name]
        column[trial] = value(column[trial]) if callable(value) else value
        return reclaimed(record)

    return change


def _denominator(arm: int, trials: slice):
    def change(record: Record) -> Record:
        columns = _trials(record, arm)
        columns["denominator"] = list(columns["denominator"])
        for index in range(8)[trials]:
            columns["denominator"][index] *= 1.01
            columns["nmse"][index] = nmse(columns["numerator"][index], columns["denominator"][index])
        return reclaimed(record)

    return change


def _unread(arm: int, trials: slice):
    """Trials without any error."""

    def change(record: Record) -> Record:
        columns = _trials(record, arm)
        for index in range(8)[trials]:
            for name in ("numerator", "key_part", "value_part", "cross_part", "nmse"):
                columns[name][index] = 0.0
        return reclaimed(record)

    return change


def _repeated_trials(first: int, others: range):
    """One query under several ids."""

    def change(record: Record) -> Record:
        for arm in range(3):
            for name, column in _trials(record, arm).items():
                for other in others if name not in ("query", "decode_us") else ():
                    column[other] = column[first]
        return reclaimed(record)

    return change


def _same_errors(source: int, target: int):
    """An arm with the errors of another one."""

    def change(record: Record) -> Record:
        for name, column in _trials(record, source).items():
            if name != "decode_us":
                _trials(record, target)[name] = list(column)
        return reclaimed(record)

    return change


def _split(arm: int, **parts: Any):
    def change(record: Record) -> Record:
        for name, value in parts.items():
            column = _trials(record, arm)[name]
            column[0] = value(column[0])
        return record

    return change


def _negative_part(record: Record) -> Record:
    columns = _trials(record, 2)
    columns["value_part"][0] += columns["key_part"][0] + 1.0
    columns["key_part"][0] = -1.0
    return record


def _short_column(record: Record) -> Record:
    _trials(record, 2)["decode_us"].pop()
    return record


def _other_queries(record: Record) -> Record:
    _trials(record, 2)["query"] = [f"f{index}" for index in range(8)]
    return record


def _repeated_query(record: Record) -> Record:
    queries = ["e0", "e1", "e2", "e3", "e4", "e5", "e6", "e0"]
    record["protocol"]["evaluation_queries"] = queries
    for arm in range(3):
        _trials(record, arm)["query"] = queries
    return record


def _short_row(record: Record) -> Record:
    search = record["measurements"]["arms"][2]["calibration"]
    search["query_nmse"][0] = [search["objective"][0]]
    return record


def _renamed(name: str):
    def change(record: Record) -> Record:
        record["recipe"]["rotations"][2]["id"] = name
        record["measurements"]["null_checks"][2]["rotation"] = name
        record["measurements"]["arms"][2]["rotation"] = name
        return record

    return change


def _dropped(*pointer: str):
    """Without the last row of an array."""

    def change(record: Record) -> Record:
        holder: Any = record
        for step in pointer:
            holder = holder[step]
        holder.pop()
        return record

    return change


def _same_digests(first: int, second: int):
    def change(record: Record) -> Record:
        rotations = record["recipe"]["rotations"]
        for name in ("key_sha256", "value_sha256"):
            rotations[second][name] = rotations[first][name]
        return record

    return change


def _selected(name: str):
    def change(record: Record) -> Record:
        record["measurements"]["selected"] = name
        return reclaimed(record)

    return change


def _better_unselected(record: Record) -> Record:
    """A candidate whose calibration is better than that of the selected one."""
    search = record["measurements"]["arms"][2]["calibration"]
    search["query_nmse"] = [[value / 2 for value in row] for row in search["query_nmse"]]
    search["objective"] = [sum(row) / len(row) for row in search["query_nmse"]]
    return record


def _turned_queries(record: Record) -> Record:
    trials = _trials(record, 1)
    trials["query"] = trials["query"][::-1]
    return record


def _metadata_16(record: Record) -> Record:
    record["measurements"]["storage"] = storage(1024, 4, 128, sinks=320, metadata_bits=16)
    return record


def _no_window(record: Record) -> Record:
    record["measurements"]["storage"] = storage(1024, 4, 128, sinks=0)
    return record


def _all_recent(record: Record) -> Record:
    record["recipe"]["recent_tokens"] = 2000
    record["measurements"]["storage"] = storage(1024, 4, 128, sinks=1024)
    return record


def _short_cache(record: Record) -> Record:
    record["workload"]["tokens"] = 320
    record["measurements"]["storage"] = storage(320, 4, 128, sinks=320)
    return record


def _claims(**members: Any):
    """The first claim with other members and the figures that follow."""

    def change(record: Record) -> Record:
        record["claims"][0] = claim(record, **members)
        return record

    return change


def _other_seed(record: Record) -> Record:
    record["claims"][0] |= {"low": claim(record, seed=8)["low"]}
    return record


def _few_trials(count: int, level: float):
    def change(_: Record) -> Record:
        few = vector(count)
        few["claims"] = [claim(few, level=level)]
        return few

    return change


def _noisy_times(record: Record) -> Record:
    for index, value in enumerate((41.0, 42.0, 40.5, 43.0, 41.5, 42.5, 40.0, 44.0)):
        _trials(record, 0)["decode_us"][index] = value
        _trials(record, 1)["decode_us"][index] = value + (-1) ** index
    record["claims"] = record["claims"][1:]
    return reclaimed(record)


def _worse(record: Record) -> Record:
    record["claims"] = record["claims"][1:]
    _trials(record, 0)["decode_us"], times = _trials(record, 1)["decode_us"], _trials(record, 0)["decode_us"]
    _trials(record, 1)["decode_us"] = times
    return reclaimed(record)


def _without(pointer: str, name: str):
    def change(record: Record) -> Record:
        del record[pointer][name]
        return record

    return change


def _one_rotation(record: Record) -> Record:
    record["recipe"]["rotations"] = record["recipe"]["rotations"][:1]
    record["recipe"]["rotation_count"] = 1
    return record


_LEAD = "/recipe/dialect"
_NOTES = {"role": "notes", "id": "n", "version": None, "path": None, "text": False, "sha256": "4" * 64}
_NOTES |= {"unbindable": "a test vector"}

# finding, slug, changes, how it differs, whether only its rule refuses it
EDITS: tuple[tuple[str, str, Any, str, bool], ...] = (
    ("missing-member", "warmup", _without("protocol", "warmup"), "protocol without warmup", False),
    (
        "missing-member",
        "measurements",
        lambda r: {k: v for k, v in r.items() if k != "measurements"},
        "gone",
        False,
    ),
    ("unknown-member", "capital", [("/protocol/Trials", 8)], "a member Trials beside trials", False),
    ("unknown-member", "arm", [(f"{_ARMS}/0/note", "x")], "a note in an arm", False),
    ("wrong-type", "null", [("/recipe/bits", None)], "bits null", False),
    ("wrong-type", "boolean", [("/protocol/trials", True)], "trials true", False),
    ("wrong-type", "column", [(f"{_ARMS}/0/trials/nmse", 0.5)], "a number for a column", False),
    ("wrong-type", "string-in-column", [(f"{_ARMS}/0/trials/nmse/0", "0.5")], "a string in a column", False),
    ("integer-out-of-range", "negative", [("/protocol/warmup", -1)], "warmup -1", False),
    ("method-unknown", "turbo", [("/recipe/method", "turbo")], "another method", True),
    ("method-unknown", "capital", [("/recipe/method", "Hadamard")], "a capital letter", True),
    ("bits-not-two", "4", _bits_4, "4 bits, stored as such", True),
    ("group-size-not-divisor", "96", [("/recipe/group_size", 96)], "groups of 96 in a head of 128", True),
    ("granularity-unknown", "key", [("/recipe/key_granularity", "per-channel")], "keys per channel", True),
    (
        "granularity-unknown",
        "value",
        [("/recipe/value_granularity", "per-tensor")],
        "values per tensor",
        True,
    ),
    (
        "objective-unknown",
        "cache-mse",
        [("/recipe/objective", "cache-reconstruction-mse")],
        "cache error",
        True,
    ),
    ("recipe-value-unknown", "centring", [("/recipe/key_centring", "median")], "another centring", True),
    ("recipe-value-unknown", "window", [("/recipe/window_dtype", "int8")], "windows in 8 bits", False),
    ("dialect-unknown", "oscar", [(f"{_LEAD}/id", "oscar")], "a name that several dialects share", True),
    ("dialect-unknown", "capital", [(f"{_LEAD}/id", "Symmetric-absmax-clip")], "a capital letter", True),
    ("dialect-differs", "rounding", [(f"{_LEAD}/rounding", "half-up")], "rounded half up", True),
    ("dialect-differs", "floor", [(f"{_LEAD}/range_floor", 1e-8)], "another range floor", True),
    (
        "fingerprint-differs",
        "zeros",
        [(f"{_LEAD}/fingerprint_sha256", "0" * 64)],
        "no such fingerprint",
        True,
    ),
    ("fingerprint-differs", "ones", [(f"{_LEAD}/fingerprint_sha256", "1" * 64)], "another fingerprint", True),
    ("dimension-not-positive", "output", [("/workload/output_dimension", 0)], "no output", True),
    ("heads-not-grouped", "6", [("/workload/query_heads", 6)], "6 query heads over 4 KV heads", True),
    (
        "workload-origin",
        "both",
        _both_origins,
        "a trace beside the slice",
        True,
    ),
    ("workload-origin", "neither", [("/workload/synthetic", None)], "neither slice nor trace", True),
    ("text-empty", "os", [("/environment/os", "")], "no operating system", True),
    ("text-empty", "artifact", [("/artifacts/2/id", "")], "a kernel without a name", True),
    ("digest-malformed", "upper-case", [("/artifacts/2/sha256", str.upper)], "upper case", True),
    ("digest-malformed", "short", [("/recipe/rotations/2/key_sha256", "12")], "two characters", True),
    ("artifact-role", "notes", [("/artifacts", lambda rows: [*rows, _NOTES])], "a role of its own", True),
    ("artifact-binding", "neither", [("/artifacts/2/unbindable", None)], "neither path nor reason", True),
    ("artifact-binding", "both", [("/artifacts/0/unbindable", "why")], "path and reason", True),
    ("artifact-path", "up", [("/artifacts/0/path", "../pinned.txt")], "a path that leads up", True),
    ("artifact-path", "absolute", [("/artifacts/0/path", "/etc/passwd")], "an absolute path", True),
    ("artifact-path", "drive", [("/artifacts/0/path", "C:/pinned.txt")], "a drive letter", True),
    ("kernel-as-text", "kernel", [("/artifacts/2/text", True)], "a kernel hashed as text", True),
    (
        "kernel-as-text",
        "weights",
        [("/artifacts", lambda rows: [*rows, _NOTES | {"role": "weights", "text": True}])],
        "weights hashed as text",
        True,
    ),
    ("artifact-missing", "kernel", _dropped("artifacts"), "a CUDA record without kernel", True),
    ("artifact-missing", "paper", [("/artifacts/1/role", "weights")], "no paper", True),
    ("unknown-evidence", "estimated", [("/evidence", "estimated")], "evidence estimated", True),
    ("unknown-evidence", "empty", [("/evidence", "")], "evidence empty", True),
    ("claim-without-trials", "all", [("/measurements", None)], "claims without measurements", False),
    ("unknown-in-observed", "warmup", [("/protocol/warmup", None)], "warmup unknown", True),
    ("unknown-in-observed", "query-heads", [("/workload/query_heads", None)], "query heads unknown", True),
    ("unknown-in-observed", "python", [("/environment/python", None)], "Python unknown", True),
    ("clock-unknown", "guess", [("/protocol/clock", "guess")], "another clock", True),
    ("clock-unsynchronised", "false", [("/protocol/synchronised", False)], "launches were timed", True),
    ("repeats-none", "zero", [("/protocol/repeats", 0)], "nothing was timed", True),
    ("rotation-count", "two", [("/recipe/rotation_count", 2)], "two declared, three there", True),
    ("rotation-count", "nine", [("/recipe/rotation_count", 9)], "nine declared, three there", True),
    ("clip-grid-size", "four", [("/recipe/clip_grid_size", 4)], "four declared, five there", True),
    ("clip-grid-size", "two-ratios", _grid(GRID[:2], slice(2)), "a grid that has no inside", False),
    ("clip-grid-size", "nine", [("/recipe/clip_grid_size", 9)], "nine declared, five there", True),
    ("too-few-rotations", "one", _one_rotation, "a baseline alone", False),
    ("clip-ratio", "above-one", _grid([1.1, *GRID[1:]]), "a ratio of 1.1", True),
    ("clip-grid-order", "swapped", _grid([0.9, 1.0, 0.8, 0.7, 0.6]), "0.9 before 1", True),
    ("clip-grid-span", "narrow", _grid([0.8 - 1e-7 * step for step in range(5)]), "ratios 1e-7 apart", True),
    ("clip-grid-span", "coarse", _grid([1.0, 0.9, 0.8, 0.7, 0.3]), "a step of 0.4", True),
    (
        "search-grid",
        "other",
        [(f"{_ARMS}/2/calibration/clip_ratio/0", 0.95)],
        "an arm with a grid of its own",
        True,
    ),
    ("rotation-id", "empty", _renamed(""), "a rotation without a name", True),
    ("rotation-id", "twice", [("/recipe/rotations/2/id", "r1")], "two rotations of one name", False),
    ("construction-unknown", "magic", [("/recipe/rotations/2/construction", "magic")], "made by magic", True),
    ("arm-set", "two", _dropped("measurements", "arms"), "three rotations, two arms", True),
    (
        "null-check-set",
        "two",
        _dropped("measurements", "null_checks"),
        "a rotation without its null check",
        True,
    ),
    ("rotations-equal", "candidates", _same_digests(1, 2), "R and -R as two candidates", True),
    ("rotations-equal", "baseline", _same_digests(0, 2), "the baseline once more", True),
    ("trial-count", "nine", [("/protocol/trials", 9)], "nine declared, eight there", True),
    ("trial-count", "seven", [("/protocol/trials", 7)], "seven declared, eight there", True),
    ("trial-column", "short", _short_column, "seven times for eight trials", False),
    (
        "arms-not-shared",
        "false",
        [("/protocol/arms_share_queries", False)],
        "queries of its own for each arm",
        True,
    ),
    ("arms-queries", "order", _turned_queries, "an arm with the queries in another order", True),
    ("arms-queries", "fresh", _other_queries, "an arm with fresh queries", True),
    ("query-repeated", "first", _repeated_query, "one query as two trials", True),
    ("queries-overlap", "one", [("/protocol/calibration_queries/0", "e3")], "one query in both lists", True),
    ("queries-overlap", "all", [("/protocol/calibration_queries", ["e0", "e1", "e2"])], "all of them", True),
    ("calibration-none", "empty", [("/protocol/calibration_queries", [])], "no calibration query", False),
    ("trials-equal", "one", _repeated_trials(6, range(7, 8)), "one query under two ids", True),
    ("trials-equal", "all", _repeated_trials(0, range(1, 8)), "one query under eight ids", True),
    ("arms-equal", "candidates", _same_errors(1, 2), "R and -R with digests of their own", True),
    ("arms-equal", "baseline", _same_errors(0, 2), "the baseline under another name", True),
    ("arms-denominators", "arm", _denominator(2, slice(None)), "an arm with a reference of its own", True),
    ("arms-denominators", "trial", _denominator(0, slice(3, 4)), "one trial of the baseline", True),
    ("trials-equal", "ulp", _copied(1 + 2**-50), "a copy whose figures differ by a few roundings", True),
    ("trials-equal", "factor", _copied(1.5), "a copy with figures 1.5 times as large", True),
    (
        "query-id",
        "plain",
        _sequences([f"e{i}" for i in range(8)], ["c0", "c1", "c2"]),
        "ids without tokens",
        True,
    ),
    (
        "query-id",
        "tokens",
        _sequences([f"t{i}@0+512/last64" for i in range(8)], CALIBRATION_SEQUENCES),
        "sequences of 512 tokens in a cache of 1024",
        True,
    ),
    (
        "query-id",
        "last",
        _sequences([f"t{i}@0+1024/last0" for i in range(8)], CALIBRATION_SEQUENCES),
        "no query at all",
        True,
    ),
    (
        "windows-overlap",
        "shifted",
        _sequences([f"t@{i}+1024/last64" for i in range(8)], CALIBRATION_SEQUENCES),
        "windows of one text, one token apart",
        True,
    ),
    (
        "windows-overlap",
        "calibration",
        _sequences(EVALUATION_SEQUENCES, ["t0@1000+1024/last64", "c1@0+1024/last64", "c2@0+1024/last64"]),
        "a calibration sequence that begins inside an evaluation sequence",
        True,
    ),
    ("trial-cross", "positive", _crossed(1, 0.125, 0.125), "a cross part of three times its bound", True),
    ("trial-cross", "negative", _crossed(2, 3.0, 0.01), "a negative cross part beyond its bound", True),
    ("denominator-negligible", "one", _shrunk(1e-3, range(1)), "one reference of a thousandth", True),
    ("denominator-negligible", "three", _shrunk(1e-11, range(3)), "three references of almost 0", True),
    ("figure-out-of-range", "negative-part", _negative_part, "a negative key part", True),
    ("figure-out-of-range", "no-time", _column(2, "decode_us", 0, 0.0), "a decode time of 0", True),
    ("trial-nmse", "rounded", _column(2, "nmse", 0, lambda value: round(value, 9)), "nine digits", True),
    ("trial-nmse", "halved", _column(1, "nmse", 3, lambda value: value / 2), "half the error", True),
    ("trial-split", "key-left-out", _split(2, key_part=lambda part: part / 2), "half the key part", True),
    (
        "trial-split",
        "sign",
        _split(1, cross_part=lambda value: -value),
        "a cross part of the wrong sign",
        True,
    ),
    (
        "calibration-objective",
        "rounded",
        [(f"{_ARMS}/2/calibration/objective/0", lambda v: round(v, 4))],
        "r",
        True,
    ),
    (
        "calibration-objective",
        "value",
        [(f"{_ARMS}/0/calibration/query_nmse/0/0", lambda value: 1.1 * value)],
        "a value that the objective does not know",
        True,
    ),
    ("calibration-table", "short", _short_row, "one value for three queries", True),
    (
        "summary-differs",
        "mean",
        [(f"{_ARMS}/2/summary/nmse_mean", lambda value: value / 2)],
        "half the mean",
        True,
    ),
    (
        "summary-differs",
        "sample",
        [(f"{_ARMS}/1/summary/nmse_stddev", lambda v: v * (8 / 7) ** 0.5)],
        "n-1",
        True,
    ),
    ("summary-differs", "median", [(f"{_ARMS}/0/summary/decode_us_median", 40.0)], "another median", True),
    ("baseline-unknown", "r9", [("/recipe/baseline", "r9")], "a baseline that is no arm", False),
    ("selected-unknown", "r9", [("/measurements/selected", "r9")], "a selection that is no arm", False),
    ("selected-unknown", "baseline", _selected("r0"), "the baseline selected", False),
    ("method-construction", "oscar", [("/recipe/method", "oscar")], "oscar with a Hadamard rotation", True),
    ("method-construction", "identity", [("/recipe/method", "identity")], "identity with one", True),
    ("null-check-bound", "1e-6", [("/measurements/null_check_bound", 1e-6)], "a bound of 1e-6", True),
    ("null-check-failed", "published", [("/measurements/null_checks/1/nmse", 1.839)], "signs last", True),
    (
        "null-check-failed",
        "half-precision",
        [("/measurements/null_checks/2/nmse", 2e-9)],
        "above the bound",
        True,
    ),
    ("output-unchanged", "one-trial", _unread(2, slice(0, 1)), "one trial without error", True),
    ("output-unchanged", "all", _unread(1, slice(None)), "an arm that reads the unquantized cache", True),
    ("nothing-quantized", "recent", _all_recent, "a recent window as long as the cache", True),
    ("nothing-quantized", "short", _short_cache, "a cache as long as its windows", True),
    ("too-few-quantized", "windows", _windows(600), "664 of 1024 tokens in windows", True),
    ("too-few-quantized", "float32", _windows(256, "float32"), "windows in float32: 11.5 bits", True),
    ("calibration-is-evaluation", "one-arm", _calibrated_on_trials(2), "one query of one arm", True),
    ("calibration-is-evaluation", "all-arms", _calibrated_on_trials(0, 1, 2), "one query of every arm", True),
    ("selection-reads", "both", [("/protocol/selection_reads", "both")], "read both", True),
    (
        "selection-reads",
        "evaluation",
        [("/protocol/selection_reads", "evaluation")],
        "read the evaluation",
        True,
    ),
    ("clip-not-best", "second", [(f"{_ARMS}/2/clip_ratio", 0.8)], "another clip than the best", True),
    (
        "selected-not-best",
        "other-improved",
        _better_unselected,
        "a better candidate that was not selected",
        True,
    ),
    ("selected-not-best", "r2", _selected("r2"), "another candidate than the best", True),
    ("clip-at-grid-end", "baseline", _grid(GRID[:-1], slice(-1)), "the baseline at the last ratio", True),
    ("clip-at-grid-end", "selected", _grid(GRID[2:], slice(2, None)), "the selected arm at the first", True),
    ("stored-bytes", "metadata", _metadata_16, "16-bit metadata under a dialect of 32", True),
    ("stored-bytes", "windows", _no_window, "no windows", True),
    ("bits-per-element", "published", [("/measurements/storage/bits_per_element", 2.25)], "2.25", True),
    (
        "bits-per-element",
        "rounded",
        [("/measurements/storage/bits_per_element", lambda v: round(v, 3))],
        "3",
        True,
    ),
    ("metadata-heavy", "8", _groups(8, 64), "groups of 8: 6 bits for a code of 2", True),
    ("metadata-heavy", "8-windows", _groups(8, 128), "groups of 8 beside a window of 128 tokens", True),
    ("claim-repeated", "same", _twice(), "one claim, word for word", True),
    ("claim-seed", "tried", _claims(seed=8), "a seed that was tried", True),
    ("claim-seed", "run", _claims(metric="output_nmse", seed=6260), "the seed of the run", True),
    ("claim-repeated", "level", _twice(metric="decode_us", level=0.9), "one claim at two levels", True),
    ("baseline-loses-to-zero", "twice", _scaled(2.0, 0), "a baseline at 1.5", True),
    ("baseline-loses-to-zero", "far", _scaled(53.0, 0), "a baseline at 40", True),
    ("baseline-preferred", "third", _preferred(0.3), "a baseline that calibration prefers", True),
    ("baseline-preferred", "tenth", _preferred(0.1), "a baseline that calibration prefers by far", True),
    ("claim-against-median", "three-of-eight", _carried(8, 3), "slower in five trials of eight", True),
    ("claim-against-median", "seven-of-sixteen", _carried(16, 7), "slower in nine trials of sixteen", True),
    ("claim-clock", "warmup", _timed(warmup=0), "no warm-up", True),
    ("claim-clock", "host", _timed(clock="host"), "a host clock on CUDA", True),
    ("too-many-claims", "17", lambda r: r | {"claims": r["claims"][:1] * 17}, "17 claims", False),
    ("claim-arm", "candidate", _claims(candidate="r2"), "about an arm that was not selected", True),
    ("claim-arm", "baseline", _claims(baseline="r2"), "against another arm than the baseline", True),
    ("claim-kind", "metric", [("/claims/0/metric", "accuracy")], "another metric", False),
    ("claim-kind", "statistic", [("/claims/0/statistic", "median-difference")], "another statistic", True),
    ("claim-kind", "method", [("/claims/0/method", "student-t")], "another method", True),
    ("claim-kind", "level", [("/claims/0/level", 0.8)], "another level", False),
    ("claim-kind", "resamples", _claims(resamples=100), "too few resamples", True),
    ("claim-value", "rounded", [("/claims/0/value", lambda value: round(value, 3))], "a rounded value", True),
    ("claim-value", "sign", [("/claims/1/value", lambda value: -value)], "the other direction", True),
    ("claim-interval", "seed", _other_seed, "the lower end of another seed", True),
    ("claim-interval", "high", [("/claims/1/high", lambda value: 1.01 * value)], "a higher upper end", True),
    (
        "winner-loses-to-zero",
        "published",
        _scaled(6.3, 1, 2, kept=slice(1, None)),
        "a claim of speed by an arm at 1.96",
        True,
    ),
    ("winner-loses-to-zero", "just", _scaled(3.5, 1, 2, kept=slice(1, None)), "barely above 1", True),
    ("claim-too-few-trials", "five", _few_trials(5, 0.95), "five trials for level 0.95", True),
    ("claim-too-few-trials", "seven", _few_trials(7, 0.99), "seven trials for level 0.99", True),
    ("claim-no-effect", "noise", _noisy_times, "times that differ by noise alone", True),
    ("claim-no-effect", "worse", _worse, "the selected arm is slower", True),
)
