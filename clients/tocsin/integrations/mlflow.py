"""MLflow: whatever logs with its fluent interface logs to Tocsin too.

import tocsin.integrations.mlflow

tocsin.integrations.mlflow.watch()
"""

from __future__ import annotations

from tocsin._run import Run
from tocsin.integrations._host import host, tap
from tocsin.integrations._trackers import send

__all__ = ["watch"]

_TODO = "pip install 'mlflow>=2'"


def watch(run: Run | None = None) -> None:
    """Hears every ``mlflow.log_metrics`` and ``mlflow.log_metric`` of this process from now on.

    Call it before anybody says ``from mlflow import log_metrics``.

    Args:
        run: where to; without it the current run, or one from the environment.

    Raises:
        DidNotEnable: MLflow is missing or too old.
    """

    def mlflow_log_metrics(metrics: object = None, step: object = None, *_: object, **__: object) -> None:
        send(run, metrics, step, 0)

    def mlflow_log_metric(
        key: object = None, value: object = None, step: object = None, *_: object, **__: object
    ) -> None:
        send(run, {key: value}, step, 0)

    mlflow = host("mlflow", _TODO)
    tap(mlflow, "log_metrics", mlflow_log_metrics, _TODO, run)
    tap(mlflow, "log_metric", mlflow_log_metric, _TODO, run)
