"""Tocsin's detectors: pure functions of a run's log. No clock, no I/O."""
