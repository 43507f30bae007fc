"""Files: safe paths, inputs, digests, atomic writes."""
