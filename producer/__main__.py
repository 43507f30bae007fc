"""`python -m producer`."""

from producer.cli import entry

entry()
