"""`python -m tests.tools.mutants`: run the switch-off campaign and name the rules that survive it."""

import sys

from tests.tools.mutants.campaign import rows, survivors

for row in rows():
    print(
        f"{row.step:>3} {row.rule:26} {len(row.cases):3} records, {len(row.sole):3} of them refused by it alone"
    )
faults = survivors()
for fault in faults:
    print(f"survives: {fault}", file=sys.stderr)
sys.exit(1 if faults else 0)
