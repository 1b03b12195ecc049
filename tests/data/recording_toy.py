"""The toy task that every recorded run learns, and what the trainers' modules share: model, reward, recorder."""

import json
import math
import time
from collections.abc import Callable
from typing import IO, Any

import numpy as np
from datasets import Dataset
from recording_runs import RunSpec
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback

TOPICS = {
    "fruit": ("apple", "pear", "plum", "fig", "cherry", "lemon", "melon", "grape"),
    "animal": ("cat", "dog", "fox", "owl", "hen", "goat", "mole", "wolf"),
    "colour": ("red", "blue", "green", "white", "black", "pink", "brown", "grey"),
    "tool": ("saw", "drill", "nail", "wrench", "chisel", "plane", "file", "clamp"),
}
EVERY_WORD = [word for words in TOPICS.values() for word in words]
BATCH = 128  # completions a step
LONGEST = 24  # tokens of a completion, the end token included
WANTED_WORDS = 10


def build_tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "<end>", "<unk>", "name", "after", *TOPICS, *EVERY_WORD]
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
    """A model of random weights, saved so that policy, reference and critic all load from the same files."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def build_prompts(seed: int, count: int = 512) -> Dataset:
    """Prompts like `name animal after red drill`: the topic decides the reward, the two words distract."""
    chance = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        topic = str(chance.choice(list(TOPICS)))
        distraction = " ".join(chance.choice(EVERY_WORD, size=2, replace=False))
        rows.append({"prompt": f"name {topic} after {distraction}", "topic": topic})
    return Dataset.from_list(rows)


class TopicReward:
    """How many different words of the prompt's topic are named, of eight, less 0.05 per word too few or too many.

    Between -0.7 and 1. Topic and length are learned within a hundred steps; never to repeat a word is much harder, so
    a healthy run levels off near 0.7 and its groups keep some variance, as with a real task. A sabotage may replace
    `distort`, which sees the honest rewards of a batch last.
    """

    __name__ = "topic"  # TRL names the reward's metrics after it

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self.distort: Callable[[list[float]], list[float]] = list

    def __call__(self, completion_ids: list[list[int]], topic: list[str], **_: Any) -> list[float]:
        return self.distort([self._score(ids, name) for ids, name in zip(completion_ids, topic, strict=True)])

    def _score(self, ids: list[int], topic: str) -> float:
        words = self._tokenizer.convert_ids_to_tokens([i for i in ids if i != self._tokenizer.eos_token_id])
        named = len(set(words) & set(TOPICS[topic]))
        return named / len(TOPICS[topic]) - 0.05 * abs(len(words) - WANTED_WORDS)


class Recorder(TrainerCallback):
    """Writes every logged step as one line of strict JSON: all that TRL logs, under TRL's names."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def on_log(self, _args: Any, state: Any, _control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "train_runtime" in logs:  # the closing summary is no step
            return
        line = {
            "step": state.global_step,
            "time": round(time.time(), 3),
            "metrics": {name: _strict(value) for name, value in logs.items()},
        }
        self._file.write(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n")
        self._file.flush()


def _strict(value: float | str | None) -> float | str | None:
    """Six significant digits; what strict JSON has no number for becomes text, None stays null."""
    if value is None or isinstance(value, int | str):
        return value
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if value == int(value) else float(f"{value:.6g}")


class Saboteur(TrainerCallback):
    """Breaks the training between the last healthy step and the run's `sabotage_step`."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self.sabotage: Callable[[], None] | None = None  # set once there is a trainer to sabotage

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if self.sabotage is not None and state.global_step + 1 == self._spec.sabotage_step:
            self.sabotage()
