"""Invertible maps of a head's channels: rotations and others, how they are built, and their files."""

from __future__ import annotations

from producer.transform.base import Rotation
from producer.transform.identity import Identity
from producer.transform.signed_hadamard import SignedHadamard

__all__ = ["Identity", "Rotation", "SignedHadamard"]
