"""Trains the toy model with TRL's GRPOTrainer and records what it logs. Started by `record.py`, one process a run."""

import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recording_runs import RUNS, RunSpec
from recording_toy import (
    BATCH,
    LONGEST,
    Recorder,
    Saboteur,
    TopicReward,
    build_prompts,
    build_tokenizer,
    save_model,
)
from transformers import set_seed
from trl import GRPOConfig, GRPOTrainer


def _scale_learning_rate(trainer: GRPOTrainer, factor: float) -> None:
    scheduler = trainer.lr_scheduler
    scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]  # or the scheduler would undo it
    for group in trainer.optimizer.param_groups:
        group["lr"] *= factor


def _put_nan(trainer: GRPOTrainer) -> None:
    with torch.no_grad():
        trainer.model.model.layers[-1].mlp.down_proj.weight[0, 0] = math.nan


def _sample_at(trainer: GRPOTrainer, temperature: float) -> None:
    trainer.generation_config.temperature = temperature
    trainer.generation_kwargs["temperature"] = temperature


def sabotage(name: str, trainer: GRPOTrainer, reward: TopicReward, seed: int) -> None:
    """Carries out one of `recording_runs.SABOTAGES`; it lasts until the run ends."""
    chance = np.random.default_rng(seed)
    match name:
        case "lr_x100":
            _scale_learning_rate(trainer, 100)
        case "reward_constant":
            reward.distort = lambda rewards: [0.0] * len(rewards)
        case "reward_broken":
            reward.distort = lambda rewards: chance.uniform(-0.8, 1.0, len(rewards)).tolist()
        case "reward_sign_flipped":
            reward.distort = lambda rewards: [-value for value in rewards]
        case "no_kl_high_lr":
            trainer.beta = 1e-12  # in effect none; with exactly 0 the trainer would no longer log the KL
            _scale_learning_rate(trainer, 10)
        case "nan_weights":
            _put_nan(trainer)
        case "temperature_mismatch":
            _sample_at(trainer, 2.0)
        case _:
            raise ValueError(f"the GRPO trainer has no sabotage {name!r}: add it to recording_grpo.sabotage")


class GapTrainer(GRPOTrainer):
    """GRPOTrainer whose sampler runs in bfloat16 and whose gap to the float32 policy is logged.

    The sampler's log-probabilities are those of the very scores it drew from, temperature included. TRL logs the
    same two metrics itself, but only when an inference server samples.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._plain_generate = self.model.generate
        self._sampler_logps: torch.Tensor | None = None
        self.model.generate = self._generate_and_keep_logps

    def _generate_and_keep_logps(self, **kwargs: Any) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = self._plain_generate(**kwargs, return_dict_in_generate=True, output_scores=True)
        logps = torch.stack(output.scores, dim=1).float().log_softmax(-1)
        chosen = output.sequences[:, -logps.size(1) :, None]
        self._sampler_logps = logps.gather(-1, chosen).squeeze(-1)
        return output.sequences

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        ids, mask = batch["completion_ids"], batch["completion_mask"].bool()
        with torch.no_grad():
            trainer_logps, _, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([batch["prompt_ids"], ids], dim=1),
                torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
                ids.size(1),
            )
        gap = (trainer_logps - self._sampler_logps).abs()[mask]
        metrics = self._metrics["train"]
        metrics["sampling/sampling_logp_difference/mean"].append(gap.mean().item())
        metrics["sampling/sampling_logp_difference/max"].append(gap.max().item())
        return batch


def build_config(spec: RunSpec, steps: int, folder: str) -> GRPOConfig:
    return GRPOConfig(
        output_dir=folder,
        seed=spec.seed,
        learning_rate=spec.learning_rate,
        lr_scheduler_type="constant",
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        num_generations=spec.group_size,
        num_iterations=spec.reuse,
        max_completion_length=LONGEST,
        beta=spec.beta,
        temperature=spec.temperature,
        # A policy of NaN would otherwise end the run with an exception of the sampler.
        generation_kwargs={"remove_invalid_values": True},
        logging_steps=1,
        logging_nan_inf_filter=spec.hide_nan_loss,
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
    with tempfile.TemporaryDirectory() as folder, output.open("w", encoding="utf-8") as file:
        save_model(folder, tokenizer)
        trainer = (GapTrainer if spec.measure_gap else GRPOTrainer)(
            model=folder,
            reward_funcs=reward,
            args=build_config(spec, steps, folder),
            train_dataset=build_prompts(spec.seed),
            processing_class=tokenizer,
            callbacks=[saboteur, Recorder(file)],
        )
        if (name := spec.sabotage) is not None:
            saboteur.sabotage = lambda: sabotage(name, trainer, reward, spec.seed)
        trainer.train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    record(RUNS[sys.argv[1]], int(sys.argv[2]), Path(sys.argv[3]))
