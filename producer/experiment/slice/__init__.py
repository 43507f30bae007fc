"""Clip search and evaluation of rotations on a synthetic attention slice."""
