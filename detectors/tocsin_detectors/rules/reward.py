"""The true reward: scores before any KL term."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, Drawdown, FromStart, Frozen, LevelShift, RankShift, Trend
from tocsin_detectors.rules.base import Condition, Guarded, Rule

TRAIN_REWARD = ("critic/score/mean", "critic/rewards/mean")

RULES = (
    Rule(
        name="reward_collapse",
        collapse=True,
        family="reward",
        metrics=TRAIN_REWARD,
        first_of=True,
        # A sudden fall of the level, or the slow slide to half of the best level that no shift test sees.
        tests=(
            LevelShift("down", z=4, relative=0.35, local=8),
            LevelShift("down", z=3, relative=0.35, smooth=5, min_rows=12),
            LevelShift("down", z=2, relative=0.7, smooth=5, min_rows=12),
            Drawdown(share=0.6, z=3, smooth=15, min_rows=30),
        ),
        severity=Severity.WARNING,
        signs=3,
        among=4,
        critical_after=6,
        critical_with=frozenset({"kl", "entropy", "gradient", "actor", "length"}),
        title="The reward fell",
        meaning=(
            "A healthy reward rises and converges. A sudden fall usually means that the model has collapsed, mostly "
            "together with the KL; a slow one, that it is degenerating."
        ),
        remedies=(
            "Go back to the last checkpoint before the onset.",
            "Read the responses at the onset: garbage, repetition or an empty answer each point elsewhere.",
            "Lower the actor's learning rate, lengthen its warm-up (verl actor_rollout_ref.actor.optim, TRL "
            "learning_rate, warmup_steps).",
            "If the text is still good, check the reward function, its service and the data of these steps.",
        ),
        source="notes on RL metrics: true rewards/score",
    ),
    Rule(
        name="reward_decline",
        unless=frozenset({"reward_collapse"}),
        collapse=True,
        family="reward",
        metrics=TRAIN_REWARD,
        first_of=True,
        tests=(
            RankShift("down", z=3.8, relative=0.35, later=20, earlier=60),
            RankShift("down", z=3.8, relative=0.35, later=40, earlier=80),  # for batches of a few answers
        ),
        severity=Severity.WARNING,
        title="The reward has slipped to a lower level",
        meaning=(
            "Over the last twenty steps (forty where single steps are very noisy) the reward ranks clearly lower than over "
            "the sixty (eighty) before, although no single step stands out. Harder data can do that; so can a model that "
            "degenerates slowly."
        ),
        remedies=(
            "Compare responses to the same kind of prompt from before and now.",
            "Check whether the data of these steps are harder (curriculum, order, filtering).",
            "If the responses got worse, go back to the best checkpoint and lower the actor's learning rate.",
        ),
        source="notes on RL metrics: true rewards/score; slow degeneration without any spike in public runs",
    ),
    Rule(
        name="reward_collapse_by_domain",
        unless=frozenset({"reward_collapse"}),
        family="reward",
        metrics=("gdpo/{function}/mean", "critic/score/{domain}/mean"),
        tests=(LevelShift("down", z=3, relative=0.5, smooth=7, min_rows=16),),
        severity=Severity.WARNING,
        title="The reward of one domain or reward function fell",
        meaning=(
            "The mean over everything can hide it: one domain, or one part of the reward, lost half of its level while "
            "others carry on."
        ),
        remedies=(
            "Read this domain's responses at the onset.",
            "Check its reward function and the share of it in the data of these steps.",
        ),
        source="notes on RL metrics: true rewards/score (report by domain)",
    ),
    Rule(
        name="reward_saturated",
        unless=frozenset({"reward_floor"}),
        family="reward",
        metrics=("critic/rewards/zero_std_ratio",),
        tests=(Bound(above=0.95),),
        signs=14,
        among=16,
        severity=Severity.WARNING,
        title="Hardly any prompt has anything left to teach",
        meaning=(
            "In (nearly) every group all answers get the same reward, so all advantages are 0. With a high reward the data "
            "have become too easy; with a low one they are too hard, or every answer is cut off before it can be right."
        ),
        remedies=(
            "If the reward is high: harder data, or filter solved prompts (verl algorithm.filter_groups, DAPO).",
            "If it is low: easier data first, a larger group, a higher temperature.",
            "If responses are cut off, raise the length limit (verl data.max_response_length, TRL max_completion_length).",
        ),
        source="notes on RL metrics: true rewards/score (accuracy of each prompt for 0-1 rewards); documented reports",
    ),
    Rule(
        name="reward_floor",
        family="reward",
        metrics=("critic/score/mean",),
        tests=(Guarded(Frozen(rows=12), (Condition.NO_REWARD_SPREAD,)),),
        severity=Severity.WARNING,
        title="The reward doesn't move at all",
        meaning=(
            "The mean reward has been exactly the same for many steps and no answer differs from another: there is no "
            "learning signal. Mostly every answer fails (too hard, cut off, parser of the reward broken)."
        ),
        remedies=(
            "Read the responses and their scores of one step.",
            "Check the reward function by hand on an answer that is right.",
            "If responses are cut off, raise the length limit (verl data.max_response_length, TRL max_completion_length).",
        ),
        source="notes on RL metrics: true rewards/score; documented reports of runs without any signal",
    ),
    Rule(
        name="reward_std_cliff",
        unless=frozenset({"reward_saturated", "reward_floor", "reward_collapse"}),
        family="reward",
        metrics=("critic/rewards/std",),
        tests=(FromStart(ratio=0.1, early=20, smooth=15),),
        recovery=32,
        severity=Severity.WARNING,
        title="The spread of the rewards fell to a tenth",
        meaning=(
            "The standard deviation of the rewards fell to a tenth of its early level and stays there. In agent training "
            "this comes before the gradient spike: answers become copies of one another."
        ),
        remedies=(
            "Filter groups without spread, and sample more rollouts per prompt.",
            "Raise the temperature or the entropy bonus.",
            "Read a whole group of responses: are they the same text?",
        ),
        source="beyond the notes: echo trap in agent training",
    ),
    Rule(
        name="likelihood_falls",
        family="reward",
        metrics=("actor/nll_loss",),
        tests=(Guarded(Trend("up", z=3.3, ratio=2.0, block=5, blocks=12, skip=20), (Condition.REWARD_RISING,)),),
        severity=Severity.WARNING,
        title="Correct responses become less likely while the reward still rises",
        meaning=(
            "The negative log-likelihood of rewarded tokens climbs although the reward does too. In search agents that was "
            "seen about 60 steps before the collapse."
        ),
        remedies=(
            "Lower the actor's learning rate, or raise the KL coefficient.",
            "Add a likelihood term for correct responses (NLL loss).",
        ),
        source="beyond the notes: likelihood displacement before collapse; notes on RL metrics: NLL Loss",
    ),
    Rule(
        name="reward_hacking",
        family="reward",
        metrics=("val-core/{source}", "val/test_score/{source}"),
        tests=(Guarded(Drawdown(share=0.2, z=5, smooth=5, min_rows=8), (Condition.REWARD_RISING,)),),
        severity=Severity.WARNING,
        title="The training reward rises while validation falls",
        meaning=(
            "The policy has learnt something that the training reward pays for and the validation score doesn't: a hole in "
            "the reward function, or memorised training data."
        ),
        remedies=(
            "Read the training samples with the highest reward.",
            "Audit the verifier with adversarial answers.",
            "Raise the KL coefficient, or stop at the best validation score.",
        ),
        source="beyond the notes: reward hacking",
    ),
    Rule(
        name="validation_drop",
        family="validation",
        metrics=("val-core/{source}", "val/test_score/{source}"),
        tests=(Drawdown(share=0.3, z=5, smooth=5, min_rows=8),),
        severity=Severity.WARNING,
        title="The validation score fell clearly below its best",
        meaning="The median of the last five validations is three tenths and more below the best such median.",
        remedies=(
            "Keep the checkpoint of the best validation.",
            "If the training reward still rises, look for a hole in the reward function.",
        ),
        source="beyond the notes: validation",
    ),
)
