"""What public reports of broken runs tell in numbers, and what has to be said of such a run.

Each case is a small run made from the numbers of one report, with the report's name; the shape between the numbers is
made up, with seeded noise. What must come, when, how urgently and with which remedy is asked of the shipped rules.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import pytest

from tocsin_detectors.alerts import Alert, Severity
from tocsin_detectors.entries import StepVector
from tocsin_service.commands.verdict import Verdict, judge

Row = dict[str, float]
NAN = math.nan


class Noise:
    """Seeded noise around a level, in shares of it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a shape, no secret

    def __call__(self, level: float, share: float = 0.05) -> float:
        return level * (1 + self._random.gauss(0, share))

    def between(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def lognormal(self, median: float, sigma: float) -> float:
        return median * math.exp(self._random.gauss(0, sigma))


def of(report: str, rows: Iterable[Row], first: int = 1, stride: int = 1) -> Verdict:
    return judge(report, [StepVector(first + stride * index, row) for index, row in enumerate(rows)])


def alert(verdict: Verdict, rule: str, metric: str | None = None) -> Alert:
    found = [one for one in verdict.alerts.values() if one.rule == rule and metric in (None, one.metric)]
    assert found, f"no {rule} on {metric} among {[one.summary for one in verdict.alerts.values()]}"
    return found[0]


def rules(verdict: Verdict) -> set[str]:
    return {one.rule for one in verdict.alerts.values()}


def remedies(one: Alert) -> str:
    return " ".join(one.remedies)


def verl_row(noise: Noise, step: int) -> Row:
    return {
        "actor/kl_loss": noise(0.01 + step * 1e-4),
        "actor/entropy_loss": noise(0.4),
        "actor/pg_loss": noise(0.01, 1),
        "actor/ppo_kl": noise(1e-4, 1),
        "actor/grad_norm": noise(0.2, 0.1),
        "actor/pg_clipfrac": noise(0.002, 0.2),
        "critic/score/mean": noise(0.3),
        "response_length/mean": noise(120),
    }


def trl_row(noise: Noise, step: int) -> Row:
    return {
        "loss": noise(0.001, 1),
        "grad_norm": noise(0.3, 0.15),
        "learning_rate": 1e-6,
        "reward": noise(0.5 + step * 2e-4),
        "reward_std": noise(0.2, 0.1),
        "completions/mean_length": noise(300),
    }


def rows_of(make: Callable[[Noise, int], Row], count: int, seed: int) -> list[Row]:
    noise = Noise(seed)
    return [make(noise, step) for step in range(1, count + 1)]


# ---- not a number


def test_verl_721_all_losses_nan_at_once() -> None:
    lost = ["actor/kl_loss", "actor/entropy_loss", "actor/pg_loss", "actor/ppo_kl", "actor/grad_norm"]
    rows = rows_of(verl_row, 70, 721)
    for row in rows[58:]:
        row.update(dict.fromkeys(lost, NAN))
    verdict = of("verl-721", rows)
    assert {one.fired_step for one in verdict.alerts.values()} == {59}
    for metric in ("actor/kl_loss", "actor/pg_loss", "actor/grad_norm"):
        one = alert(verdict, "non_finite", metric)
        assert (one.severity, one.onset_step) == (Severity.CRITICAL, 59)
        assert "resume from the last checkpoint" in remedies(one)
        assert "old log-probs" in remedies(one)
    (incident,) = verdict.incidents.values()
    assert (incident.severity, incident.onset_step, incident.last_good_step) == (Severity.CRITICAL, 59, 58)


def test_verl_751_kl_nan_for_one_step() -> None:
    rows = rows_of(verl_row, 70, 751)
    rows[40]["actor/kl_loss"] = NAN
    one = alert(of("verl-751", rows), "non_finite", "actor/kl_loss")
    assert (one.severity, one.fired_step, one.reason) == (Severity.CRITICAL, 41, "recovered")
    assert "Clamp" in remedies(one)
    assert "kl_loss_type" in remedies(one)


def test_agent_r1_30_nan_and_its_side_effects_are_one_incident() -> None:
    rows = rows_of(verl_row, 100, 30)
    for step, row in enumerate(rows, start=1):
        dead = step >= 83
        row.update({"critic/score/max": -1.0 if dead else 1.0, "critic/score/min": -1.0})
        row.update({"response_length/clip_ratio": 1.0 if dead else 0.05, "response_length/max": 257.0})
        row.update(dict.fromkeys(("critic/advantages/max", "critic/advantages/mean"), 0.0 if dead else 0.1))
        if dead:
            row.update({name: NAN for name in row if name.startswith("actor/")})
            row.update({"critic/score/mean": -1.0, "response_length/mean": 257.0})
    verdict = of("agent-r1-30", rows)
    (incident,) = verdict.incidents.values()
    assert (incident.severity, incident.onset_step, incident.opened_step) == (Severity.CRITICAL, 83, 83)
    assert {"non_finite", "reward_collapse", "length_shift", "truncation_high"} <= rules(verdict)
    assert all(one.onset_step >= 83 for one in verdict.alerts.values())


@pytest.mark.parametrize("step", [6, 8, 10, 25, 31, 108, 115])
def test_soup_342_nan_out_of_the_blue(step: int) -> None:
    rows = rows_of(trl_row, step + 3, step)
    for row in rows[step - 1 :]:
        row["grad_norm"] = NAN
    verdict = of("soup-342", rows)
    (one,) = verdict.alerts.values()  # nothing announced it, and nothing may pretend to have
    assert (one.rule, one.metric, one.severity) == ("non_finite", "actor/grad_norm", Severity.CRITICAL)
    assert (one.onset_step, one.fired_step) == (step, step)


def test_ms_swift_3136_late_nan_with_rewards_at_0() -> None:
    rows = rows_of(trl_row, 200, 3136)
    for row in rows[179:]:
        row.update({"learning_rate": 0.0, "grad_norm": NAN, "kl": NAN, "reward": 0.0, "reward_std": 0.0})
    verdict = of("ms-swift-3136", rows)
    assert alert(verdict, "non_finite", "actor/grad_norm").fired_step == 180
    assert alert(verdict, "non_finite", "actor/kl_loss").severity is Severity.CRITICAL
    assert alert(verdict, "reward_collapse").fired_step <= 183
    assert len(verdict.incidents) == 1


def test_ms_swift_3930_loss_and_kl_exactly_0() -> None:
    rows = rows_of(trl_row, 200, 3930)
    for step, row in enumerate(rows, start=1):
        row["kl"] = 0.01 + step * 1e-4
        if step >= 180:
            row.update({"loss": 0.0, "kl": 0.0})
    one = alert(of("ms-swift-3930", rows), "kl_frozen")
    assert (one.onset_step, one.fired_step) == (180, 199)


def test_easy_r1_177_a_lone_outlier_before_the_garbage() -> None:
    rows = rows_of(verl_row, 90, 177)
    rows[69]["actor/grad_norm"] = 38.0
    for row in rows[70:]:
        row.update({"critic/score/mean": 0.0, "response_length/mean": 2048.0})
    verdict = of("easy-r1-177", rows)
    assert alert(verdict, "grad_norm_spike").fired_step == 70
    assert alert(verdict, "reward_collapse").fired_step <= 74
    (incident,) = verdict.incidents.values()
    assert (incident.rule, incident.last_good_step) == ("model_collapse", 69)


def test_open_r1_704_never_finite_from_the_first_step() -> None:
    noise = Noise(704)
    rows = [{"kl": NAN, "loss": noise(-0.28), "reward": noise(13.4, 0.02)} for _ in range(60)]
    (one,) = of("open-r1-704", rows).alerts.values()
    assert (one.rule, one.metric, one.severity) == ("non_finite", "actor/kl_loss", Severity.CRITICAL)
    assert (one.onset_step, one.fired_step, one.resolved_step) == (1, 1, None)


# ---- gradient norm


def test_trl_2980_ever_higher_spikes_while_the_reward_rises() -> None:
    rows = rows_of(trl_row, 400, 2980)
    for step in range(250, 400, 11):
        for spike in rows[step : step + 2]:
            spike["grad_norm"] = 2.0 * 1.1 ** ((step - 250) / 11)
    verdict = of("trl-2980", rows, stride=50)
    one = alert(verdict, "grad_norm_spike")
    assert one.severity is Severity.WARNING
    assert verdict.worst is Severity.WARNING


def test_ocamler_grpo_the_warning_shot() -> None:
    noise = Noise(17)
    usual = [min(max(noise.lognormal(0.6, 0.5), 0.1), 3.0) for _ in range(40)]
    rows = [{"grad_norm": norm, "reward": noise(0.3), "loss": noise(0.01, 1)} for norm in [*usual, 111.0]]
    one = alert(of("ocamler-grpo", rows), "grad_norm_spike")
    assert (one.severity, one.fired_step) == (Severity.WARNING, 41)
    lost = alert(of("ocamler-grpo", [*rows, {**rows[-1], "grad_norm": 54_648_652.0}]), "grad_norm_spike")
    assert lost.severity is Severity.CRITICAL
    assert "max_grad_norm" in remedies(lost)


def test_actors_18_huge_norm_and_kl_from_the_second_step() -> None:
    noise = Noise(18)
    rows = [{"grad_norm": noise(800, 0.5), "kl": noise(12, 0.2), "reward": noise(0.2)} for _ in range(30)]
    one = alert(of("actors-18", [{"grad_norm": 0.3, "kl": 1e-4, "reward": 0.2}, *rows]), "kl_high_from_start")
    assert one.severity is Severity.CRITICAL
    assert one.fired_step <= 5


# ---- KL


def test_verl_3512_kl_wrong_from_the_first_step() -> None:
    rows = rows_of(verl_row, 40, 3512)
    healthy = of("verl-3512-control", [dict(row) for row in rows])
    assert not healthy.alerts
    noise = Noise(3723)
    for row in rows:
        row["actor/kl_loss"] = noise(1.8, 0.1)
    one = alert(of("verl-3512", rows), "kl_high_from_start", "actor/kl_loss")
    assert (one.onset_step, one.severity) == (1, Severity.WARNING)
    assert "fused kernels or sequence parallelism" in remedies(one)


def test_open_r1_257_kl_grows_long_before_the_reward_is_0() -> None:
    noise = Noise(257)
    rows = rows_of(trl_row, 400, 257)
    for step, row in enumerate(rows, start=1):
        row.update({"kl": noise(8.6e-5 * 1.034**step, 0.2), "reward": 0.0 if step >= 360 else noise(0.8)})
    verdict = of("open-r1-257", rows)
    drift = alert(verdict, "kl_runaway")
    assert drift.fired_step < 300
    assert alert(verdict, "reward_collapse").fired_step in range(360, 365)


def test_the_lm_book_6_loss_climbs_at_a_flat_reward() -> None:
    noise = Noise(6)
    levels = [0.02 if step < 400 else 0.02 * math.exp((step - 400) * 0.03) for step in range(1, 500)]
    one = alert(
        of("the-lm-book-6", [{"loss": noise(x, 0.3), "avg_reward": noise(1.8)} for x in levels]), "actor_loss_rising"
    )
    assert one.severity is Severity.WARNING
    assert one.fired_step in range(400, 500)


# ---- training against inference engine


def drifting(end: float, seed: int) -> Verdict:
    noise = Noise(seed)
    diffs = [noise(0.011 + (end - 0.011) * step / 29, 0.02) for step in range(30)]
    rows = [{"train/train_rollout_logprob_abs_diff": diff, "rollout/raw_reward": noise(0.3)} for diff in diffs]
    return of("vime-64", rows, first=0)


def test_vime_64_a_gap_that_triples_and_a_flat_one() -> None:
    assert not drifting(0.011, 64).alerts
    assert min(one.fired_step for one in drifting(0.036, 64).alerts.values()) <= 20


def test_trl_5312_inference_stays_at_the_old_policy() -> None:
    rows = rows_of(trl_row, 200, 5312)
    noise = Noise(5312)
    for step, row in enumerate(rows, start=1):
        row["sampling/sampling_logp_difference/mean"] = noise(0.01 * math.exp(step * 0.02), 0.1)
        row["reward"] = noise(0.3)
    verdict = of("trl-5312", rows)
    one = alert(verdict, "mismatch_kl_rising", "rollout_corr/logprob_abs_diff_mean")
    assert one.fired_step < 150
    assert "weights are synchronised" in remedies(one)


def test_verl_2996_ratio_not_one_before_the_first_update() -> None:
    rows = [{**row, "actor/first_ratio_deviation": 0.03} for row in rows_of(verl_row, 20, 2996)]
    one = alert(of("verl-2996", rows), "first_minibatch_ratio_not_one")
    assert one.fired_step <= 4
    assert "same micro-batch size" in remedies(one)


def test_openclaw_69_log_probs_far_apart_from_the_start() -> None:
    noise = Noise(69)
    rows = [{"train/train_rollout_logprob_abs_diff": noise.between(0.2, 0.4), "train/ppo_kl": 0.01} for _ in range(20)]
    one = alert(of("openclaw-69", rows, first=0), "logprob_diff_high")
    assert (one.onset_step, one.severity) == (0, Severity.WARNING)
    for remedy in ("One epoch per rollout", "lower learning rate", "larger rollout batch"):
        assert remedy in remedies(one)


# ---- entropy


def entropy_run(length: int, level: Callable[[int], float], collapse: int, seed: int) -> Verdict:
    noise = Noise(seed)
    rows = rows_of(trl_row, length, seed)
    for step, row in enumerate(rows, start=1):
        fallen = max(0.015, 0.6 - 0.006 * (step - collapse)) if step >= collapse else 0.6
        row.update({"entropy": noise(level(step), 0.02), "reward": noise(fallen)})
    return of("trl-6407", rows)


def test_trl_6407_entropy_above_2_for_good_and_the_reward_gone() -> None:
    def level(step: int) -> float:
        if step < 236:
            return 0.9 + 0.0045 * step
        return 3.0 + 1.0 * math.sin(step / 15) + (3.0 if step % 37 == 0 else 0.0)

    verdict = entropy_run(400, level, 250, 6407)
    one = alert(verdict, "entropy_explosion")
    assert one.fired_step in range(220, 251)
    assert alert(verdict, "reward_collapse").severity is Severity.CRITICAL


def test_trl_6407_a_touch_is_no_level() -> None:
    def level(step: int) -> float:
        if step == 661:
            return 2.02
        return 0.9 + 0.0009 * step if step < 990 else 2.1 + 0.002 * (step - 990)

    verdict = entropy_run(1100, level, 1050, 661)
    one = alert(verdict, "entropy_explosion")
    assert one.fired_step in range(960, 1030)
    assert not [other for other in verdict.alerts.values() if other.fired_step < 900]


# ---- reward


@pytest.mark.parametrize(
    ("report", "before", "after", "step"),
    [
        ("search-r1-88", 0.35, 0.02, 160),
        ("zero-search-23", 0.3, 0.01, 60),
        ("spg-2", 0.6, 0.0, 650),
        ("ragen-52", -2.0, -5.5, 63),
        ("llama-factory-2813", 0.8, -1.5, 120),
        ("deepspeed-examples-586", 0.6, 0.206, 259),
    ],
)
def test_the_reward_falls_for_good(report: str, before: float, after: float, step: int) -> None:
    noise = Noise(step)
    rows = [{"critic/score/mean": noise(before, 0.1)} for _ in range(step - 1)]
    rows += [{"critic/score/mean": noise(after, 0.002)} for _ in range(20)]
    verdict = of(report, rows)
    one = alert(verdict, "reward_collapse")
    assert one.fired_step in range(step, step + 4)
    assert verdict.worst is Severity.CRITICAL  # it lasts
    assert "learning rate, lengthen its warm-up" in remedies(one)
    assert not [other for other in verdict.alerts.values() if other.fired_step < step]


# ---- length, dead gradients, critic


def test_autocontext_1067_every_answer_cut_off_from_the_start() -> None:
    row = {
        "completions/mean_length": 256.0,
        "completions/clipped_ratio": 1.0,
        "completions/mean_terminated_length": 0.0,
    }
    row |= dict.fromkeys(("reward", "reward_std", "loss", "grad_norm"), 0.0) | {"frac_reward_zero_std": 1.0}
    verdict = of("autocontext-1067", [row] * 40)
    one = alert(verdict, "reward_floor")
    assert (one.onset_step, one.fired_step) == (1, 12)
    assert "raise the length limit" in remedies(one)
    assert "max_completion_length" in remedies(one)
    (incident,) = verdict.incidents.values()  # once, not once for each of its symptoms
    assert incident.severity is Severity.WARNING


def test_ms_swift_5890_rewards_differ_and_nothing_is_learnt() -> None:
    noise = Noise(5890)
    dead = dict.fromkeys(("grad_norm", "kl", "loss"), 0.0)
    rows = [{**dead, "reward": noise(0.71), "reward_std": noise(0.13), "learning_rate": 1e-6} for _ in range(40)]
    one = alert(of("ms-swift-5890", rows), "grad_norm_zero")
    assert (one.severity, one.onset_step, one.fired_step) == (Severity.WARNING, 1, 16)
    assert "which parameters are trainable" in remedies(one)
    warming_up = [{**row, "learning_rate": 0.0} for row in rows]
    assert "grad_norm_zero" not in rules(of("warming-up", warming_up))


def critic_run(levels: Iterable[float]) -> Verdict:
    noise = Noise(556)
    rows = [{"critic_loss": noise(x, 0.1), "reward": noise(0.3), "actor_loss": noise(0.05, 1)} for x in levels]
    return of("deepspeed-examples-556", rows)


def test_deepspeed_556_the_critic_falls_behind() -> None:
    verdict = critic_run([4.0] * 60 + [4 + 3 * step / 100 for step in range(100)] + [7.0] * 40)
    assert alert(verdict, "critic_loss_rising").severity is Severity.WARNING
    assert verdict.worst is Severity.WARNING


def test_deepspeed_556_a_high_but_flat_loss_is_the_control() -> None:
    assert not critic_run([5.0] * 200).alerts
