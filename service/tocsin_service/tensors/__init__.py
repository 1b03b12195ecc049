"""Tensors on their way to the metrics: the wire format checked without trust, memory bounded, computed on one thread.

Nothing here imports torch before a request with tensors comes in: :mod:`~tocsin_service.tensors.compute` does, and the
worker loads it.
"""
