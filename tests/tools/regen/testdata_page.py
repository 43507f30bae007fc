"""testdata/README.md: where each file comes from."""

from tests.tools.regen import records, records_v2

_HEAD = """\
# Test data

Apache-2.0, like the project. Everything here is made by `make regen` from `tests/tools/regen/`, and `make test`
compares it.

- `records/v1/`: one record a finding at least, named `<finding>-<slug>.json`, made by `tests/tools/regen/records.py`
  from the published L4 record by one change. `supported/l4-published.json` is that record, rebuilt from the published
  figures by `tests/tools/regen/published.py`; that its witness digest comes out as published proves the figures. The
  large file and the files that are no UTF-8 are meant to be so.
- `manifest-v1.jsonl`: for each record the verdict that it must get, the accepted twin that it differs from in one
  place, and the pins file that it is judged with. `tests/kvint2eval/contract/v1/test_records.py` reads it.
- `pins/`: pins files for the records of step 10, and a file that they pin (`tests/tools/regen/pins.py`).
- `records/v2/`: the same for contract v2, made by `tests/tools/regen/records_v2.py` from the *test vector* of
  `tests/tools/regen/vector_v2.py`. Its figures come from a seeded generator and fit one another; no run gave them, and
  the record's environment says so. `manifest-v2.jsonl` lists them, with `is_sole` for the records that only one rule
  refuses: `make mutants` switches each rule off and wants to see them pass. Those under other dialects and
  constructions (`tests/tools/regen/dialects_v2.py`) have the vector's figures: they are test vectors too, not runs.
- `runs/paired.json`: a run of the producer on a CPU, contract v2, made by `make run-record`: not generated, since times
  differ from run to run. `tests/producer/record/test_rederive_v2.py` computes its figures again.
- `runs/smollm2-schemes.json`: summaries of `kvint2eval-producer evaluate` on SmolLM2-135M-Instruct, by the commands in
  docs/results/schemes.md, whose table `tests/docs/test_scheme_pages.py` compares. The traces themselves are not kept.
  `runs/balanced-*.json` come from `make evidence`; `tests/docs/test_evidence.py` recomputes both.
- `runs/length-4k.json`, `runs/length-8k.json`: `evaluate` at 4,096 and 8,192 tokens, by the commands in
  docs/results/balanced.md. `runs/independent-trial.json`: figures that another implementation reported, typed in; no
  run of it is kept.
  `runs/remade-earlier.txt`: what `rederive --remade` printed of earlier records on another
  processor. `tests/docs/test_results_pages.py` recomputes what the page quotes of the former.
- `runs/smollm2-layers.jsonl`: v2 records of `kvint2eval-producer compare` on the same traces, one a layer
  (docs/results/balanced.md), by `make evidence` too; the same test adjudicates them.
- `vectors/golden-inputs.json`: the inputs of a dialect's fingerprint, hexadecimal floats
  (`tests/tools/regen/fingerprint.py`).
- `vectors/fingerprints.json`: the fingerprint of every dialect; `tests/producer/dialect_reference.py` computes each a
  second time. `vectors/torch/*.pt`: small files of `torch.save` (`tests/tools/regen/torch_files.py`).
- `golden/report/`: the whole report on all records, one a format (`tests/tools/regen/golden.py`).

| record | finding | how it differs from its twin |
|---|---|---|
"""


def render() -> bytes:
    """Text of testdata/README.md."""
    rows = [f"| `{case.path}` | {case.finding or 'none'} | {case.made} |" for case in records.cases()]
    rows += [f"| `v2/{case.path}` | {case.finding or 'none'} | {case.made} |" for case in records_v2.cases()]
    return (_HEAD + "\n".join(rows) + "\n").encode()
