"""The rollout log of a process: one thread that writes, one that asks, one that looks at the limits."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from tocsin_service.rollouts.limits import setting_problem
from tocsin_service.settings import Settings
from tocsin_service.tensors.admission import Admission

if TYPE_CHECKING:
    from tocsin_service.rollouts.queries import Queries
    from tocsin_service.rollouts.writing import Keeper

__all__ = ["RolloutLog", "SettingWrong", "open_log"]

logger = logging.getLogger(__name__)

BODIES = 4  # requests with rollouts under way
QUESTIONS = 16  # that wait for their answer
LOOK_SECONDS = 600.0
T = TypeVar("T")


class SettingWrong(RuntimeError):  # noqa: N818 - reads as what happened
    """The log can't be opened as the settings say; the text says why."""


class RolloutLog:
    """Keeps rollouts and answers questions about them, beside the event loop.

    Attributes:
        admission: bodies that may be under way at a time; used from the event loop.
        questions: likewise for questions.
    """

    def __init__(self, keeper: Keeper, queries: Queries, most_bytes: int) -> None:
        self._keeper, self._queries = keeper, queries
        self._writer = ThreadPoolExecutor(1, "tocsin-rollouts-write")
        self._reader = ThreadPoolExecutor(1, "tocsin-rollouts-read")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, name="tocsin-rollouts-trim", daemon=True)
        self.admission = Admission(BODIES, 2 * most_bytes, "rollouts")
        self.questions = Admission(QUESTIONS, QUESTIONS, "questions about rollouts")

    def start(self) -> None:
        """Begins to look at the limits."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; what is being written is finished."""
        self._stopping.set()
        self._writer.shutdown(wait=True, cancel_futures=True)
        self._queries.interrupt()
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._thread.join()
        self._queries.close()

    async def write(self, work: Callable[[Keeper], T]) -> T:
        """What ``work`` returns; it is done one after the other."""
        return await asyncio.wrap_future(self._writer.submit(work, self._keeper))

    async def ask(self, question: Callable[[Queries], T]) -> T:
        """The answer to a question."""
        return await asyncio.wrap_future(self._reader.submit(question, self._queries))

    def tidy_later(self, run: str) -> None:
        """Merges the run's files behind what waits to be written."""
        if not self._stopping.is_set():
            self._writer.submit(self._tidy, run)

    def _tidy(self, run: str) -> None:
        try:
            self._keeper.tidy(run)
        except Exception:
            logger.exception("the rollout files of run %r can't be merged; they stay as they are", run)

    def _look(self) -> None:
        while True:
            try:
                gone = self._keeper.trim()
            except Exception:
                logger.exception("the rollout files can't be trimmed")
            else:
                if gone:
                    logger.info("removed %d old rollout files", gone)
            if self._stopping.wait(LOOK_SECONDS):
                return


def open_log(settings: Settings, stack: ExitStack) -> RolloutLog | None:
    """The log that the settings ask for, stopped with the stack; None if they ask for none.

    Raises:
        SettingWrong: something that it needs isn't there.
    """
    root = settings.rollout_dir
    if root is None:
        return None
    try:
        writing = import_module("tocsin_service.rollouts.writing")
        queries = import_module("tocsin_service.rollouts.queries")
        redaction = import_module("tocsin_service.rollouts.redaction")
        sampling = import_module("tocsin_service.rollouts.sampling")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in {"pyarrow", "duckdb"}:
            raise
        raise SettingWrong(
            f"rollout_dir: {error.name} is not installed; install it with: pip install 'tocsin[rollouts]'"
        ) from None
    if problem := setting_problem(root, settings.rollout_hook):
        raise SettingWrong(problem)
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        redact = redaction.Redaction(settings.rollout_redact, settings.rollout_hook)
    except OSError as error:
        raise SettingWrong(f"rollout_dir: {root} can't be made: {error.strerror}") from None
    except ValueError as error:
        raise SettingWrong(str(error)) from None
    policy = sampling.Sampling(settings.rollout_every, settings.rollout_rows)
    keeper = writing.Keeper(root, policy, redact, settings.rollout_bytes, settings.rollout_days)
    log = RolloutLog(keeper, queries.Queries(root), settings.max_rollout_bytes)
    stack.callback(log.stop)
    log.start()
    return log
