"""Makes evaluation records of 2-bit KV-cache schemes, and runs published ones again."""
