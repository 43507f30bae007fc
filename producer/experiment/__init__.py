"""Experiments: the protocol on the synthetic slice, and schemes on traces and in models."""
