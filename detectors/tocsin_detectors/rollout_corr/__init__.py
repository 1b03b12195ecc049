"""Metrics of tensors: engines that drift apart, importance weights, rejection, and their kin. Needs PyTorch.

``measure`` computes whatever a batch allows; trainers that want one thing call its function:

    rows = Rows.padded(response_mask)                      # [B, T]; or Rows.ragged(response_lengths) for flat tensors
    metrics = offpolicy_metrics(old_log_probs, rollout_log_probs, rows)
    weights, metrics = importance_weights(old_log_probs, rollout_log_probs, rows, level="token", threshold=2.0)
    mask, metrics = rejection_mask(old_log_probs, rollout_log_probs, rows, rejections="token_k1", thresholds="0.5_2")
"""

try:
    import torch  # noqa: F401 - the question is whether it is there
except ImportError as error:
    raise ImportError("tocsin_detectors.rollout_corr needs PyTorch: pip install 'tocsin[torch]'") from error

from tocsin_detectors.rollout_corr.debug import rollout_probs_diff
from tocsin_detectors.rollout_corr.errors import OptionError, TensorError
from tocsin_detectors.rollout_corr.family import Finding
from tocsin_detectors.rollout_corr.kl import kl_penalty
from tocsin_detectors.rollout_corr.measure import ROW_LEVEL, TOKEN_LEVEL, Measured, measure
from tocsin_detectors.rollout_corr.options import FAMILIES, Options
from tocsin_detectors.rollout_corr.rows import Block, Rows
from tocsin_detectors.rollout_corr.thresholds import REJECTIONS
from tocsin_detectors.rollout_corr.totals import Totals
from tocsin_detectors.rollout_corr.trainer import importance_weights, offpolicy_metrics, rejection_mask

__all__ = [
    "FAMILIES",
    "REJECTIONS",
    "ROW_LEVEL",
    "TOKEN_LEVEL",
    "Block",
    "Finding",
    "Measured",
    "OptionError",
    "Options",
    "Rows",
    "TensorError",
    "Totals",
    "importance_weights",
    "kl_penalty",
    "measure",
    "offpolicy_metrics",
    "rejection_mask",
    "rollout_probs_diff",
]
