"""``python -m tocsin.tail``."""

from __future__ import annotations

import argparse
import sys

from tocsin.tail import add_arguments, tail

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tocsin.tail", description="Stream growing logs to Tocsin.")
    add_arguments(parser)
    group = parser.add_argument_group("what is known of the runs (all optional)")
    group.add_argument("--framework", help="verl, trl, openrlhf, ...: settles ambiguous metric names")
    group.add_argument("--algorithm", help="grpo, ppo, ...")
    group.add_argument("--group-size", type=int, help="rollouts per prompt")
    group.add_argument("--temperature", type=float, help="sampling temperature")
    sys.exit(tail(parser.parse_args()))
