"""Lengths of responses. They may go up, down or nowhere: only a sudden change is news."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, LevelShift
from tocsin_detectors.rules.base import Rule

RULES = (
    Rule(
        name="length_shift",
        collapse=True,
        family="length",
        # Characters, where only the texts are known: of them as of tokens only a sudden change is news.
        metrics=("response_length/mean", "response_chars/mean"),
        first_of=True,
        tests=(
            LevelShift("both", z=5, ratio=1.5, absolute=4, local=8, severe_factor=2.5),
            LevelShift("both", z=3, ratio=1.5, absolute=4, smooth=5, local=16, min_rows=12),
        ),
        severity=Severity.WARNING,
        critical_with=frozenset({"reward", "kl", "entropy"}),
        title="The responses' length changed suddenly",
        meaning=(
            "No direction of the length is bad in itself, but it moves slowly while a policy learns. A jump to the limit "
            "is mostly endless repetition; a fall to a few tokens, an answer that has been emptied because emptiness "
            "pays or because the model can't do better any more."
        ),
        remedies=(
            "Read the responses at the onset.",
            "If they are cut off, look at the truncated share and the length limit (verl data.max_response_length, TRL "
            "max_completion_length).",
            "If they have become short, check whether the reward pays for short answers.",
        ),
        source="notes on RL metrics: response length",
    ),
    Rule(
        name="truncation_high",
        collapse=True,
        family="length",
        metrics=("response_length/clip_ratio",),
        # A run may live with nearly every answer at its limit, so the level alone says little: the rise does.
        tests=(
            LevelShift("up", z=5, absolute=0.2, local=8),
            LevelShift("up", z=3, absolute=0.2, smooth=5, local=16, min_rows=12),
            LevelShift("up", z=2, absolute=0.35, smooth=5, min_rows=12),
        ),
        severity=Severity.WARNING,
        critical_with=frozenset({"reward", "kl", "entropy"}),
        title="Suddenly many responses are cut off at the length limit",
        meaning=(
            "A truncated answer mostly gets no reward whatever it would have become: the reward is poisoned, and what is "
            "learnt is to be short or to give up."
        ),
        remedies=(
            "Read some of the cut responses: repetition means a collapse, good text means that the limit is too low.",
            "Raise the limit (verl data.max_response_length, TRL max_completion_length).",
            "Add an overlong penalty, or mask truncated answers (TRL mask_truncated_completions).",
        ),
        source="notes on RL metrics: response length, truncation at 8K, 16K and 32K",
    ),
    Rule(
        name="aborted_high",
        family="length",
        metrics=("response/aborted_ratio",),
        tests=(Bound(above=0.05),),
        signs=3,
        among=4,
        severity=Severity.WARNING,
        title="Many responses were aborted",
        meaning="More than one rollout in twenty came back empty: the engine, a tool or a time limit breaks them off.",
        remedies=(
            "Look at the rollout engine's log for pre-emption, time-outs and out-of-memory errors.",
            "Check the tools' and the environment's time limits.",
        ),
        source="notes on RL metrics: verl appendix, response/aborted_ratio",
    ),
    Rule(
        name="prompt_truncated",
        family="length",
        metrics=("prompt_length/clip_ratio",),
        tests=(Bound(above=0.0),),
        signs=12,
        among=16,
        severity=Severity.INFO,
        title="Prompts are being cut off",
        meaning="Some prompts reach the length limit at nearly every step; what was cut off may be the question itself.",
        remedies=(
            "Raise the prompt limit (verl data.max_prompt_length), or filter long prompts (data.filter_overlong_prompts).",
        ),
        source="notes on RL metrics: verl appendix, prompt_length/clip_ratio",
    ),
)
