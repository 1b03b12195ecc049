"""Judging runs: the worker, which worker serves which runs, the watchdog of silent runs, and retention."""
