"""Backends: where the work that grows with the number of tokens is done."""
