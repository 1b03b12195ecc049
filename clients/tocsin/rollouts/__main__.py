"""``python -m tocsin.rollouts``: the command where there is nothing but the client."""

from __future__ import annotations

import argparse
import sys

from tocsin.rollouts import add_arguments, send


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tocsin.rollouts", description="Send rollouts to a Tocsin service.")
    add_arguments(parser)
    return send(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
