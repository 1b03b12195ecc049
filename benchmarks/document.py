"""Bring the tables of docs/benchmarks.md up to date: run each command shown there and put in what it prints.

    python benchmarks/document.py [TEXT ...]     # only the commands that contain one of these texts

The prose between the tables, with its named misses, is written by hand: read it against the new figures.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
BLOCK = re.compile(r"^```console\n\$ (python benchmarks/[^\n]+)\n.*?^```$", re.MULTILINE | re.DOTALL)


def renew(block: re.Match[str]) -> str:
    command = block[1]
    if sys.argv[1:] and not any(text in command for text in sys.argv[1:]):
        return block[0]
    print(command, flush=True)
    done = subprocess.run(
        [sys.executable, *command.split()[1:]], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    lines = "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())
    return f"```console\n$ {command}\n{lines}\n```"


def main() -> None:
    PAGE.write_text(BLOCK.sub(renew, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
