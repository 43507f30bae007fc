"""Traces: queries, keys, values and output weights of a model's attention, from dumps, from files, or captured.

Inside, every reader gives `producer.trace.data.LayerTrace`. Nothing here imports torch but `model` and `capture`.
"""
