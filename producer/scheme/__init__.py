"""Compression schemes of a KV cache: registry, fit to calibration data, clip tuning, fitted files, stored cache."""
