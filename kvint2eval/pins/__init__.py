"""Digests that are known from elsewhere than the record, and files below a root."""
