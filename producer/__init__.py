"""Evaluation records of 2-bit KV-cache schemes: making them, and running published ones again."""

from __future__ import annotations

import os

# The producer spreads its work over forked processes, and a process with threads must not be forked. OpenBLAS
# reads this once, when NumPy is first imported; a value that the user has set stays.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
