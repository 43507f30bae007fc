"""Reasons and findings of contract v1, and those of steps 0 and 1, which all contracts share."""

from kvint2eval.codes.kinds import FindingCode, Outcome, Reason, ReasonCode

__all__ = ["EXAMPLES_V1", "FINDINGS_V1", "REASONS_V1"]

_U = Outcome.UNSUPPORTED

REASONS_V1: dict[Reason, ReasonCode] = {
    Reason.SUPPORTED: ReasonCode(
        Outcome.SUPPORTED,
        "An observed CUDA record, complete and consistent, whose witness digest is its own.",
        "Nothing to fix. Supported does not mean true: run the producer's audit and rederive.",
    ),
    Reason.MALFORMED_RECORD: ReasonCode(
        _U,
        "The bytes are no JSON object that every reader understands alike, or a member has a wrong type or is unknown.",
        "Fix the bytes at the place that the finding names.",
    ),
    Reason.UNKNOWN_CONTRACT: ReasonCode(
        _U,
        "contract_version names a contract that this adjudicator does not know.",
        "Write kvint2eval/v1, or use a release that knows the contract.",
    ),
    Reason.UNSUPPORTED_METHOD: ReasonCode(
        _U,
        "recipe.method is not the method that the contract covers.",
        "Only optr-output-aware-int2 can be judged by v1.",
    ),
    Reason.UNSUPPORTED_QUANTIZATION: ReasonCode(
        _U,
        "The quantization, the objective or the baseline is not the one that the contract covers.",
        "Measure with the recipe that section 2, step 3 of the contract lists.",
    ),
    Reason.INCOMPLETE_PROVENANCE: ReasonCode(
        _U,
        "A pin, the runtime, or the hardware and model envelope is incomplete; the detail names the first such part.",
        "Fill the member that the finding names from the run's own log; do not invent it.",
    ),
    Reason.MODELED_NOT_OBSERVED: ReasonCode(
        Outcome.DELEGATE,
        "The figures are modeled: nothing was observed, so there is nothing to support or refute.",
        "Run the evaluation on the hardware and record what was observed.",
    ),
    Reason.RUNTIME_DELEGATION_REQUIRED: ReasonCode(
        Outcome.DELEGATE,
        "A valid recipe whose figures were not observed on CUDA; the observation is left to a GPU node.",
        "Run the producer on a machine with CUDA and check in the record that it writes.",
    ),
    Reason.INVALID_MEASUREMENT: ReasonCode(
        _U,
        "A measurement is missing, impossible, or contradicts another one.",
        "Run the producer again; a figure that was edited by hand rarely stays consistent.",
    ),
    Reason.FIXTURE_DIGEST_MISMATCH: ReasonCode(
        _U,
        "witness_sha256 is not the digest of the record: the record was changed after it was sealed.",
        "Restore the record. If the change was meant, seal it again: kvint2eval digest --witness prints the digest.",
    ),
    Reason.PIN_MISMATCH: ReasonCode(
        _U,
        "A digest in the record, or a pinned file, differs from the pins that were given.",
        "Find out which of the two changed. A changed producer or kernel needs a new run, then a new pin.",
    ),
}

_MALFORMED = Reason.MALFORMED_RECORD
_QUANTIZATION = Reason.UNSUPPORTED_QUANTIZATION
_PROVENANCE = Reason.INCOMPLETE_PROVENANCE
_RUNTIME = Reason.RUNTIME_DELEGATION_REQUIRED
_MEASUREMENT = Reason.INVALID_MEASUREMENT
_DIGEST = Reason.FIXTURE_DIGEST_MISMATCH
_PIN = Reason.PIN_MISMATCH

FINDINGS_V1: dict[str, FindingCode] = {
    # Step 0, the bytes.
    "empty-input": FindingCode(_MALFORMED, 0, "The input holds no JSON value.", "Write one JSON object."),
    "record-too-large": FindingCode(
        _MALFORMED, 0, "The record is larger than 1 MiB.", "Keep raw trials in a file of their own."
    ),
    "utf16": FindingCode(_MALFORMED, 0, "The text is UTF-16 or UTF-32.", "Save the file as UTF-8."),
    "byte-order-mark": FindingCode(
        _MALFORMED, 0, "The text begins with a byte-order mark.", "Save the file as UTF-8 without one."
    ),
    "not-utf8": FindingCode(_MALFORMED, 0, "A byte is not UTF-8.", "Save the file as UTF-8."),
    "nested-too-deep": FindingCode(
        _MALFORMED, 0, "Objects and arrays nest deeper than 32.", "A record nests four deep; remove the rest."
    ),
    "invalid-json": FindingCode(_MALFORMED, 0, "The text is not JSON.", "Fix the syntax at the place given."),
    "trailing-content": FindingCode(
        _MALFORMED,
        0,
        "Something follows the JSON value.",
        "One record a file; several go into JSON Lines (.jsonl).",
    ),
    "duplicate-member": FindingCode(
        _MALFORMED,
        0,
        "An object has two members of one name, compared after unescaping: two readers could see different records.",
        "Remove one of the two.",
    ),
    "not-a-number": FindingCode(
        _MALFORMED,
        0,
        "NaN or Infinity stands where a number belongs.",
        "Find out why the figure is not finite.",
    ),
    "number-overflow": FindingCode(
        _MALFORMED, 0, "A number overflows binary64 to infinity.", "Write the figure that was measured."
    ),
    "number-underflow": FindingCode(
        _MALFORMED,
        0,
        "A number other than 0 is too small for binary64, which makes it 0.",
        "Write the figure that was measured.",
    ),
    "negative-zero": FindingCode(
        _MALFORMED, 0, "A number is negative zero, which readers write in different ways.", "Write 0."
    ),
    "integer-too-long": FindingCode(
        _MALFORMED,
        0,
        "An integer has more than 20 digits.",
        "No member of a record needs more than 20 digits.",
    ),
    "lone-surrogate": FindingCode(
        _MALFORMED,
        0,
        "A string holds half of a surrogate pair, which is no character.",
        "Write the whole pair, or the character.",
    ),
    "not-an-object": FindingCode(_MALFORMED, 0, "The JSON value is not an object.", "Write one JSON object."),
    # Step 0, the members; judged after step 1, since another version may have another layout.
    "unknown-member": FindingCode(
        _MALFORMED, 0, "The contract has no member of this name here.", "Remove it, or fix its spelling."
    ),
    "wrong-type": FindingCode(
        _MALFORMED, 0, "A member has a wrong type.", "Write the type that is allowed; null is not a value."
    ),
    "fraction-in-integer": FindingCode(
        _MALFORMED,
        0,
        "An integer member is written with a fraction or an exponent.",
        "Write plain digits: 7, not 7.0 or 7e0.",
    ),
    "integer-out-of-range": FindingCode(
        _MALFORMED, 0, "An integer is out of its member's range.", "Write the figure that was measured."
    ),
    # Steps 1 to 3.
    "unknown-contract": FindingCode(
        Reason.UNKNOWN_CONTRACT,
        1,
        "contract_version is no version that is known here.",
        "Write kvint2eval/v1, or use a newer release.",
    ),
    "unsupported-method": FindingCode(
        Reason.UNSUPPORTED_METHOD,
        2,
        "recipe.method is not optr-output-aware-int2.",
        "v1 covers this one method.",
    ),
    "recipe-bits": FindingCode(_QUANTIZATION, 3, "recipe.bits is not 2.", "v1 covers INT2 only."),
    "recipe-group-size": FindingCode(
        _QUANTIZATION, 3, "recipe.group_size is not 128.", "v1 covers groups of 128 values only."
    ),
    "recipe-key-granularity": FindingCode(
        _QUANTIZATION, 3, "recipe.key_granularity is not per-token-group.", "v1 covers per-token groups only."
    ),
    "recipe-value-granularity": FindingCode(
        _QUANTIZATION,
        3,
        "recipe.value_granularity is not per-token-group.",
        "v1 covers per-token groups only.",
    ),
    "recipe-objective": FindingCode(
        _QUANTIZATION,
        3,
        "recipe.objective is not post-wo-attention-output-nmse.",
        "v1 covers the error of the projected attention output only.",
    ),
    "recipe-baseline": FindingCode(
        _QUANTIZATION,
        3,
        "recipe.baseline is not identity-rotation-int2.",
        "Compare with the same quantizer without a rotation.",
    ),
    # Step 4.
    "pin-id-empty": FindingCode(_PROVENANCE, 4, "A pin has no id.", "Name the artifact."),
    "pin-version-empty": FindingCode(
        _PROVENANCE, 4, "A pin has no version.", "Write the artifact's version."
    ),
    "pin-digest-malformed": FindingCode(
        _PROVENANCE,
        4,
        "A pin's sha256 is not 64 lower-case hexadecimal characters.",
        "kvint2eval digest PATH prints the digest in this form.",
    ),
    "runtime-member-empty": FindingCode(
        _PROVENANCE,
        4,
        "A member of runtime is empty.",
        "Write name, version, driver and kernel as the run saw them.",
    ),
    "runtime-digest-malformed": FindingCode(
        _PROVENANCE,
        4,
        "runtime.sha256 is not 64 lower-case hexadecimal characters.",
        "Write the SHA-256 of the compiled program: kvint2eval digest PATH.",
    ),
    "envelope-member-missing": FindingCode(
        _PROVENANCE, 4, "A member of hardware is missing.", "Write it; an unknown memory size is 0."
    ),
    "envelope-os-empty": FindingCode(
        _PROVENANCE, 4, "hardware.os is empty.", "Write the operating system with its version."
    ),
    "envelope-dimension": FindingCode(
        _PROVENANCE, 4, "A dimension of the evaluated slice is not positive.", "Write the size that was run."
    ),
    "envelope-seed-zero": FindingCode(
        _PROVENANCE,
        4,
        "hardware.seed is 0, which counts as no seed.",
        "Write the seed that was used, or run with one.",
    ),
    # Steps 5 to 7.
    "modeled-evidence": FindingCode(
        Reason.MODELED_NOT_OBSERVED,
        5,
        "evidence is modeled.",
        "Run the evaluation and record what was observed.",
    ),
    "unknown-evidence": FindingCode(
        _MEASUREMENT,
        6,
        "evidence is neither observed nor modeled.",
        "Write observed or modeled, whichever is true.",
    ),
    "runtime-not-cuda": FindingCode(
        _RUNTIME,
        7,
        "runtime.name is not cuda: the figures come from another runtime.",
        "Run the producer on a GPU node.",
    ),
    "gpu-unnamed": FindingCode(
        _RUNTIME, 7, "hardware.gpu is empty: no GPU took part.", "Run the producer on a GPU node."
    ),
    # Step 8.
    "measurement-missing": FindingCode(
        _MEASUREMENT,
        8,
        "A measurement or a member of a candidate row is missing.",
        "Record every figure of the run.",
    ),
    "measurement-negative": FindingCode(
        _MEASUREMENT, 8, "A measurement is negative.", "No figure of a record can be below 0."
    ),
    "cache-bytes": FindingCode(
        _MEASUREMENT,
        8,
        "cache_bytes is not tokens x heads x head dimension x 2 (K and V) x 2 bits / 8.",
        "Write the packed payload's size; metadata is not part of it in v1.",
    ),
    "latency-not-positive": FindingCode(
        _MEASUREMENT, 8, "A decode time is not positive.", "Check the clock and its synchronisation."
    ),
    "accuracy-out-of-range": FindingCode(
        _MEASUREMENT, 8, "A task accuracy is above 1.", "An accuracy is a share of the trials, in [0, 1]."
    ),
    "too-few-trials": FindingCode(
        _MEASUREMENT, 8, "decode_trials is below 2.", "A deviation needs at least two trials."
    ),
    "too-few-candidates": FindingCode(
        _MEASUREMENT, 8, "Fewer than two candidate rows.", "A comparison needs the baseline and a candidate."
    ),
    "candidate-count": FindingCode(
        _MEASUREMENT, 8, "candidate_count is not the number of rows.", "Keep every row that was searched."
    ),
    "rotation-set": FindingCode(
        _MEASUREMENT,
        8,
        "The rotations of the rows are not 0 to n-1, each once.",
        "Rotation 0 is the baseline; number the rest without gaps.",
    ),
    "clip-ratio-out-of-range": FindingCode(
        _MEASUREMENT,
        8,
        "A clip ratio is not in (0, 1].",
        "A clip ratio is a share of the group's largest magnitude.",
    ),
    "calibration-not-positive": FindingCode(
        _MEASUREMENT, 8, "A calibration time is not positive.", "Check the clock and its synchronisation."
    ),
    "selected-rotation": FindingCode(
        _MEASUREMENT, 8, "selected_rotation is no row, or is the baseline.", "Name the row that was selected."
    ),
    "baseline-summary": FindingCode(
        _MEASUREMENT,
        8,
        "A baseline figure is not that of rotation 0.",
        "Copy the figure from the row of rotation 0.",
    ),
    "candidate-summary": FindingCode(
        _MEASUREMENT,
        8,
        "A candidate figure is not that of the selected row.",
        "Copy the figure from the selected row.",
    ),
    "transform-summary": FindingCode(
        _MEASUREMENT,
        8,
        "transform_milliseconds is not calibration_milliseconds of the selected row.",
        "Copy the figure from the selected row.",
    ),
    "accuracy-impossible": FindingCode(
        _MEASUREMENT,
        8,
        "A task accuracy is no k/n for n = decode_trials.",
        "The task is one bit a trial, so its mean is a whole number of trials over n.",
    ),
    "accuracy-deviation-impossible": FindingCode(
        _MEASUREMENT,
        8,
        "The deviation of a task accuracy p is not sqrt(p(1-p)).",
        "The task is one bit a trial, so the mean decides the population deviation.",
    ),
    "deviation-impossible": FindingCode(
        _MEASUREMENT,
        8,
        "A deviation is larger than mean x sqrt(n-1), the most that n values of this mean can have.",
        "Divide by n, not by n-1, and check that no value is negative.",
    ),
    # Step 9.
    "witness-missing": FindingCode(
        _DIGEST,
        9,
        "witness_sha256 is missing or empty.",
        "Seal the record: kvint2eval digest --witness prints the digest.",
    ),
    "witness-malformed": FindingCode(
        _DIGEST,
        9,
        "witness_sha256 is not 64 lower-case hexadecimal characters.",
        "Write the digest in lower case, without a newline.",
    ),
    "witness-mismatch": FindingCode(
        _DIGEST,
        9,
        "witness_sha256 is not the digest of the record.",
        "Restore the record; seal it again only if the change was meant.",
    ),
    # Step 10.
    "pin-mismatch": FindingCode(
        _PIN,
        10,
        "A digest in the record is not the pinned one.",
        "The record belongs to another version of the artifact: run again, or pin the version that was run.",
    ),
    "pinned-file-mismatch": FindingCode(
        _PIN,
        10,
        "The pinned file has another digest than its pin.",
        "The file changed since it was pinned: restore it, or run again and pin anew.",
    ),
    "pinned-file-missing": FindingCode(
        _PIN,
        10,
        "The pinned file is not there or is not a regular file.",
        "Restore the file, or declare the pin unbindable with a reason.",
    ),
}

EXAMPLES_V1: dict[str, str] = {
    "empty-input": "a file of zero bytes",
    "record-too-large": "a record of 1,048,577 bytes",
    "utf16": "a record saved as UTF-16",
    "byte-order-mark": "EF BB BF before the first brace",
    "not-utf8": "byte E9, Latin-1 for e with acute, in hardware.os",
    "nested-too-deep": "33 opening brackets in a row",
    "invalid-json": "a comma after the last member",
    "trailing-content": "a second object after the first",
    "duplicate-member": '"seed": 6260 and later "\\u0073eed": 1 in the same object',
    "not-a-number": '"output_nmse_mean": NaN',
    "number-overflow": '"output_nmse_mean": 1e400',
    "number-underflow": '"output_nmse_mean": 1e-400',
    "negative-zero": '"task_accuracy_stddev": -0.0',
    "integer-too-long": '"seed": 123456789012345678901',
    "lone-surrogate": '"os": "\\ud800"',
    "not-an-object": "[] instead of a record",
    "unknown-member": '"Seed": 6260 in hardware',
    "wrong-type": '"bits": "2"',
    "fraction-in-integer": '"bits": 2.0',
    "integer-out-of-range": '"seed": -1',
    "unknown-contract": '"contract_version": "kvint2eval/v9"',
    "unsupported-method": '"method": "unknown-rotation"',
    "recipe-bits": '"bits": 4',
    "recipe-group-size": '"group_size": 64',
    "recipe-key-granularity": '"key_granularity": "per-channel"',
    "recipe-value-granularity": '"value_granularity": "per-channel"',
    "recipe-objective": '"objective": "cache-reconstruction-mse"',
    "recipe-baseline": '"baseline": "fp16"',
    "pin-id-empty": '"id": "" in artifact',
    "pin-version-empty": '"version": "" in model',
    "pin-digest-malformed": "a pin's digest in upper case, or with a newline at its end",
    "runtime-member-empty": '"driver": "" in runtime',
    "runtime-digest-malformed": "63 characters in runtime.sha256",
    "envelope-member-missing": "hardware without gpu_memory_bytes",
    "envelope-os-empty": '"os": ""',
    "envelope-dimension": '"kv_heads": 0',
    "envelope-seed-zero": '"seed": 0',
    "modeled-evidence": '"evidence": "modeled"',
    "unknown-evidence": '"evidence": "estimated"',
    "runtime-not-cuda": '"name": "numpy" in runtime',
    "gpu-unnamed": '"gpu": ""',
    "measurement-missing": "metrics without decode_trials",
    "measurement-negative": '"output_nmse_mean": -1.5',
    "cache-bytes": "1048577 for a cache of 1048576 bytes",
    "latency-not-positive": '"decode_microseconds_mean": 0',
    "accuracy-out-of-range": '"task_accuracy_mean": 1.1',
    "too-few-trials": '"decode_trials": 1',
    "too-few-candidates": "one candidate row",
    "candidate-count": '"candidate_count": 8 with nine rows',
    "rotation-set": "two rows of rotation 3 and none of rotation 4",
    "clip-ratio-out-of-range": '"clip_ratio": 1.2',
    "calibration-not-positive": '"calibration_milliseconds": 0',
    "selected-rotation": '"selected_rotation": 0',
    "baseline-summary": "baseline_output_nmse 52.4 where row 0 has 52.3537316",
    "candidate-summary": "candidate_output_nmse of a row that was not selected",
    "transform-summary": "transform_milliseconds of a row that was not selected",
    "accuracy-impossible": "an accuracy of 0.15 from 10 trials",
    "accuracy-deviation-impossible": "0.316 (divided by n-1) where 0.3 belongs",
    "deviation-impossible": "mean 1, deviation 4 over 10 trials",
    "witness-missing": '"witness_sha256": ""',
    "witness-malformed": "the digest in upper case",
    "witness-mismatch": "a digit of a figure changed after the record was sealed",
    "pin-mismatch": "the record names another producer digest than the pins file",
    "pinned-file-mismatch": "the producer was edited after it was pinned",
    "pinned-file-missing": "the producer was moved",
}
"""What gives each finding, in a few words."""
