"""The tensors that a body may hold; what each of them is, the library says."""

from __future__ import annotations

__all__ = ["NAMES"]

NAMES = (
    # one value per token
    "old_log_probs",
    "rollout_log_probs",
    "ref_log_prob",
    "log_probs",
    "entropys",
    "advantages",
    "returns",
    "values",
    "token_level_scores",
    "token_level_rewards",
    # the layout
    "response_mask",
    "response_lengths",
    "cu_seqlens",
    # one value per row
    "scores",
    "rewards",
    "prompt_lengths",
    "group",
    "prompt",
    "domain",
    "gradient_step",
)
