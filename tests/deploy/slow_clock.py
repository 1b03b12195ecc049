"""`tocsin serve` whose clock stands an hour back until a file is made: a long silence needs no long wait.

python slow_clock.py PORT DATABASE FILE
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from pathlib import Path

from tocsin_service.app import Service
from tocsin_service.judging import stalled
from tocsin_service.settings import Settings

if __name__ == "__main__":
    port, database, caught_up = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    logging.basicConfig(level=logging.INFO)
    stalled.LOOK_SECONDS = 0.2

    def clock() -> float:
        return time.time() - (0.0 if caught_up.exists() else 3600.0)

    with Service(Settings(port=port, db=database), clock=clock):
        threading.Event().wait()
