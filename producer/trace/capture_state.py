"""The state of an unfinished capture: what is captured, and the sequences that are done, from which it goes on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from producer.errors import FileFormatError, SpecError
from producer.system.files import write_text
from producer.trace.files import has_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from producer.trace.model_info import ModelInfo
    from producer.trace.texts import SequenceInfo

__all__ = ["CaptureState"]

_FORMAT = "kvint2eval-capture-v1"
_FILE = "capture.jsonl"


class CaptureState:
    """The sequences of a capture that are done, kept in ``capture.jsonl`` until the trace is whole.

    Parameters
    ----------
    folder : Path
        Of the trace; made if it is missing.
    model : ModelInfo
    sequences : sequence of SequenceInfo

    Raises
    ------
    SpecError
        If the folder holds a trace, or an unfinished one of another model or other sequences.
    FileFormatError
        If its state is none of ours. A last line without an end is a write that was cut off, and is dropped.
    """

    def __init__(self, folder: Path, model: ModelInfo, sequences: Sequence[SequenceInfo]) -> None:
        if (folder / "trace.json").exists():
            raise SpecError(f"output {folder} is not allowed: it holds a trace")
        self._path = folder / _FILE
        self._done: dict[int, dict[str, float]] = {}
        # The name of a file or folder is no property of a model.
        head: dict[str, Any] = {"format": _FORMAT, "model": asdict(model) | {"name": ""}}
        head["sequences"] = [[one.token_ids_sha256, one.text_sha256] for one in sequences]
        head = json.loads(json.dumps(head))
        if self._path.exists():
            self._read(head, folder, model)
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpecError(f"output {folder} is not allowed: {error.strerror}") from error
        write_text(self._path, json.dumps(head) + "\n")

    def _read(self, head: dict[str, Any], folder: Path, model: ModelInfo) -> None:
        whole, _, cut_off = self._path.read_bytes().rpartition(b"\n")
        try:
            found, *entries = [json.loads(line) for line in whole.splitlines()]
            done = {
                int(entry["sequence"]): {str(name): float(value) for name, value in entry["found"].items()}
                for entry in entries
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(f"{self._path}: no state of {_FORMAT}: {error!r}") from error
        if found != head:
            raise SpecError(
                f"output {folder} is not allowed: it holds an unfinished trace of another model, of other texts, or of "
                "other lengths; take another folder, or remove it"
            )
        # A file that is missing is captured again.
        self._done = {index: value for index, value in done.items() if has_sequence(folder, model, index)}
        if cut_off:
            write_text(self._path, whole.decode() + "\n")

    def get(self, index: int) -> dict[str, float] | None:
        """Return what the capture of a sequence verified, if it is done."""
        return self._done.get(index)

    def add(self, index: int, found: dict[str, float]) -> None:
        """Keep a sequence, whose files are on the disk; it is in the state when this returns."""
        with self._path.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(json.dumps({"sequence": index, "found": found}) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def close(self) -> None:
        """Remove the state: the trace is whole."""
        self._path.unlink(missing_ok=True)
