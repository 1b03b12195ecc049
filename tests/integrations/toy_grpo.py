"""A GRPO run of a few seconds on a CPU, with TRL's own trainer and Tocsin's callback; started as a process of its own.

The model has random weights and learns to answer with words of one kind. A sabotage breaks it in the middle; the
healthy twin is the same run without.
"""

import argparse
import json
import math
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

import tocsin
from tocsin.integrations.trl import TocsinCallback

WANTED = ("apple", "pear", "plum", "fig", "cherry", "lemon")
OTHER = ("saw", "drill", "nail", "file", "clamp", "plane", "wrench", "chisel")
BATCH = 32  # completions a step
LONGEST = 12  # tokens of a completion


def build_tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "<end>", "<unk>", "name", "a", "fruit", "after", *WANTED, *OTHER]
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106  # no password
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",  # noqa: S106  # no password
        eos_token="<end>",  # noqa: S106  # no password
        unk_token="<unk>",  # noqa: S106  # no password
        padding_side="left",
    )


def save_model(folder: str, tokenizer: PreTrainedTokenizerFast) -> None:
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


class FruitReward:
    """The share of wanted words among six, less a little for every word too many; between -0.3 and 1."""

    __name__ = "fruit"  # TRL names the reward's metrics after it

    def __init__(self) -> None:
        self.sign = 1.0

    def __call__(self, completions: list[str], **_: Any) -> list[float]:
        return [self.sign * self._score(text.split()) for text in completions]

    @staticmethod
    def _score(words: list[str]) -> float:
        return len(set(words) & set(WANTED)) / len(WANTED) - 0.05 * max(0, len(words) - len(WANTED))


class Saboteur(TrainerCallback):
    """Breaks the training before its step ``at``, the first that runs sabotaged."""

    def __init__(self, kind: str, at: int, reward: FruitReward) -> None:
        self._kind, self._at, self._reward = kind, at, reward
        self.trainer: GRPOTrainer | None = None

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.global_step + 1 != self._at or self.trainer is None:
            return
        match self._kind:
            case "nan_weights":
                with torch.no_grad():
                    self.trainer.model.model.layers[-1].mlp.down_proj.weight[0, 0] = math.nan
            case "lr_x100":
                scheduler = self.trainer.lr_scheduler
                scheduler.base_lrs = [rate * 100 for rate in scheduler.base_lrs]
                for group in self.trainer.optimizer.param_groups:
                    group["lr"] *= 100
            case "reward_sign_flipped":
                self._reward.sign = -1.0


def build_config(arguments: argparse.Namespace, folder: str) -> GRPOConfig:
    options = {
        "output_dir": folder,
        "seed": arguments.seed,
        "learning_rate": 2e-3,
        "lr_scheduler_type": "constant",
        "max_steps": arguments.steps,
        "per_device_train_batch_size": BATCH,
        "num_generations": 8,
        "max_completion_length": LONGEST,
        "beta": 0.02,
        "temperature": 1.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
    }
    known = {field.name for field in fields(GRPOConfig)}  # older ones have fewer
    return GRPOConfig(**{name: value for name, value in options.items() if name in known})


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    set_seed(arguments.seed)
    tokenizer, reward = build_tokenizer(), FruitReward()
    saboteur = Saboteur(arguments.sabotage, arguments.at, reward)
    run = tocsin.init(arguments.run, url=arguments.url)
    prompts = Dataset.from_list([{"prompt": f"name a fruit after {word}"} for word in OTHER] * 16)
    with tempfile.TemporaryDirectory() as model:
        save_model(model, tokenizer)
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=build_config(arguments, arguments.output),
            train_dataset=prompts,
            processing_class=tokenizer,
            callbacks=[TocsinCallback(stop_on="critical", checkpoint_on="critical"), saboteur],
        )
        saboteur.trainer = trainer
        # A policy of NaN would otherwise end the run with an exception of the sampler.
        trainer.generation_config.remove_invalid_values = True
        trainer.train()
    return {
        "step": trainer.state.global_step,
        "checkpoints": sorted(path.name for path in Path(arguments.output).glob("checkpoint-*")),
        "stats": run.stats(),
        "rewards": [line["reward"] for line in trainer.state.log_history if "reward" in line],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--sabotage", default="none")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--seed", type=int, default=7)
    print(json.dumps(train(parser.parse_args())))
