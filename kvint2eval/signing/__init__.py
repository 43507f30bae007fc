"""Signatures over the bytes of a record, and the policy that says whose count."""
