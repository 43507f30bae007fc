"""JSON: a strict parser, the RFC 8785 form, differences and descriptions of values."""
