"""Schemes on traces of real models, and in the models that the traces were taken from."""
