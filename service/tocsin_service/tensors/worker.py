"""The one thread that computes, beside the event loop, and the bounds of what waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tocsin_service.priority import give_way
from tocsin_service.settings import Settings
from tocsin_service.tensors.admission import Admission
from tocsin_service.tensors.errors import TensorsRefused
from tocsin_service.tensors.intake import Body

if TYPE_CHECKING:
    from tocsin_detectors.rollout_corr.options import Options
    from tocsin_service.tensors.compute import Computed

__all__ = ["TensorWorker"]

COMPUTE = "tocsin_service.tensors.compute"


class TensorWorker:
    """Computes the metrics of bodies, one after the other. Its thread starts, and torch is loaded, with the first one.

    Attributes:
        admission: what may be in memory at a time; used from the event loop.
    """

    def __init__(self, settings: Settings) -> None:
        self._compute = partial(_compute, settings.tensor_device, settings.tensor_threads)
        self._executor = ThreadPoolExecutor(1, "tocsin-tensors", initializer=give_way)
        self.admission = Admission(settings.tensor_queue, settings.tensor_queue_bytes)

    @staticmethod
    def installed() -> bool:
        """Whether there is a torch to compute with; doesn't load it."""
        return find_spec("torch") is not None

    @staticmethod
    def options(values: Mapping[str, Any]) -> Options:
        """The options in ``values``. The first call loads torch, which takes seconds.

        Raises:
            OptionsError: one is unknown or not valid.
        """
        options: Options = import_module(COMPUTE).parse_options(values)
        return options

    def submit(self, body: Body, options: Options) -> Future[Computed | TensorsRefused]:
        """Puts a body in the line; what comes of it, or why it is refused. The body is let go of when it is done."""
        return self._executor.submit(self._compute, body, options)

    def stop(self) -> None:
        """Drops what waits; what is being computed ends by itself, and with the process at the latest."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _compute(device: str, threads: int, body: Body, options: Options) -> Computed | TensorsRefused:
    """What came of it. A refusal is returned, not raised: its traceback would keep the tensors alive."""
    try:
        computed: Computed = import_module(COMPUTE).compute(body, options, device, threads)
    except TensorsRefused as error:
        return type(error)(str(error))
    return computed
