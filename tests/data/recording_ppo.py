"""Trains the toy model with TRL's PPOTrainer, critic included, and records what it logs.

Started by `record.py`, one process a run. TRL ships this trainer up to version 1.12.
"""

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from recording_runs import RUNS, RunSpec
from recording_toy import (
    BATCH,
    LONGEST,
    TOPICS,
    Recorder,
    Saboteur,
    TopicReward,
    build_prompts,
    build_tokenizer,
    save_model,
)
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
    get_constant_schedule,
    set_seed,
)
from trl.experimental.ppo import PPOConfig, PPOTrainer

PROMPT_TOKENS = 5
TOPIC_POSITION = 1
CRITIC_GROUP = 1  # of the optimiser's parameter groups


class TokensAsStates(torch.nn.Module):
    """A backbone whose "hidden states" are the token ids themselves, for a reward that is a rule and no network."""

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(hidden_states=[input_ids.unsqueeze(-1).float()])


class RewardModel(torch.nn.Module):
    """The toy reward in the shape of a reward model: `backbone` and `score`, as PPOTrainer calls them."""

    base_model_prefix = "backbone"

    def __init__(self, reward: TopicReward, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__()
        self.backbone = TokensAsStates()
        self._reward = reward
        self._pad = tokenizer.pad_token_id
        self._topics = {tokenizer.convert_tokens_to_ids(topic): topic for topic in TOPICS}

    def score(self, states: torch.Tensor) -> torch.Tensor:
        """The reward of each whole sequence, repeated at each of its positions: [batch, length, 1]."""
        rows = states.squeeze(-1).long().tolist()
        completions = [[token for token in row[PROMPT_TOKENS:] if token != self._pad] for row in rows]
        topics = [self._topics[row[TOPIC_POSITION]] for row in rows]
        scores = torch.tensor(self._reward(completions, topics))
        return scores[:, None, None].expand(states.shape)


def build_optimizer(policy: Any, critic: Any, learning_rate: float) -> torch.optim.Optimizer:
    """Adam with the policy and the critic in groups of their own, so that a sabotage can reach one of them."""
    groups = [{"params": list(policy.parameters())}, {"params": list(critic.parameters())}]
    return torch.optim.AdamW(groups, lr=learning_rate, weight_decay=0.0)


def sabotage(name: str, trainer: PPOTrainer, reward: TopicReward) -> None:
    """Carries out one of `recording_runs.SABOTAGES`; it lasts until the run ends."""
    match name:
        case "critic_lr_x100":
            trainer.lr_scheduler.base_lrs[CRITIC_GROUP] *= 100
            trainer.optimizer.param_groups[CRITIC_GROUP]["lr"] *= 100
        case "reward_scale_x10":
            reward.distort = lambda rewards: [10 * value for value in rewards]
        case _:
            raise ValueError(f"the PPO trainer has no sabotage {name!r}: add it to recording_ppo.sabotage")


def build_config(spec: RunSpec, steps: int, folder: str) -> PPOConfig:
    return PPOConfig(
        output_dir=folder,
        seed=spec.seed,
        learning_rate=spec.learning_rate,
        total_episodes=steps * BATCH,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=1,
        num_mini_batches=1,
        num_ppo_epochs=spec.reuse,
        local_rollout_forward_batch_size=BATCH,
        num_sample_generations=0,
        response_length=LONGEST,
        temperature=spec.temperature,
        kl_coef=spec.beta,
        stop_token="eos",  # noqa: S106  # no password
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )


def record(spec: RunSpec, steps: int, output: Path) -> None:
    set_seed(spec.seed)
    tokenizer = build_tokenizer()
    reward = TopicReward(tokenizer)
    saboteur = Saboteur(spec)
    prompts = build_prompts(spec.seed).map(
        lambda row: {"input_ids": tokenizer(row["prompt"])["input_ids"]}, remove_columns=["prompt", "topic"]
    )
    with tempfile.TemporaryDirectory() as folder, output.open("w", encoding="utf-8") as file:
        save_model(folder, tokenizer)
        policy = AutoModelForCausalLM.from_pretrained(folder)
        critic = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
        optimizer = build_optimizer(policy, critic, spec.learning_rate)
        trainer = PPOTrainer(
            args=build_config(spec, steps, folder),
            processing_class=tokenizer,
            model=policy,
            ref_model=AutoModelForCausalLM.from_pretrained(folder),
            reward_model=RewardModel(reward, tokenizer),
            value_model=critic,
            train_dataset=prompts,
            eval_dataset=prompts.select(range(1)),  # the trainer wants one; it is never used
            optimizers=(optimizer, get_constant_schedule(optimizer)),
            callbacks=[saboteur, Recorder(file)],
        )
        if (name := spec.sabotage) is not None:
            saboteur.sabotage = lambda: sabotage(name, trainer, reward)
        trainer.train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    record(RUNS[sys.argv[1]], int(sys.argv[2]), Path(sys.argv[3]))
