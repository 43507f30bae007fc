"""Traces: queries, keys, values and output weights of a model's attention, from dumps, from files, or captured.

Inside, every reader gives `producer.trace.layer.LayerTrace`. Nothing here imports torch but `model` and `capture`.
"""
