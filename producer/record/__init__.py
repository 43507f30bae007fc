"""Evaluation records: building, reading, re-derivation and audit. The only package that imports kvint2eval."""
