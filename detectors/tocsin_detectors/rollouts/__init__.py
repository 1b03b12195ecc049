"""What a step's texts and scores tell: metrics derived from the rollouts themselves.

    from tocsin_detectors.rollouts import Numbers, Rollouts, measure

    metrics = measure(Rollouts(responses=texts, rewards=Numbers.of(rewards), groups=prompts))

Every metric has its canonical name, so the rules see it as if the trainer had logged it.
"""

from tocsin_detectors.rollouts.columns import Numbers, Rollouts
from tocsin_detectors.rollouts.measure import LIMITS, measure
from tocsin_detectors.rollouts.repetition import repetition

__all__ = ["LIMITS", "Numbers", "Rollouts", "measure", "repetition"]
