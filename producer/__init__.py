"""Makes evaluation records of 2-bit KV-cache schemes, and runs published ones again."""

import os

# The producer has threads of its own, and its results must not depend on their number. OpenBLAS reads this
# once, when NumPy is first imported; a value that the user has set stays.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
