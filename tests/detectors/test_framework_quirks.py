"""What frameworks do oddly when they log: other signs and units, placeholders, repeats, and step axes of their own."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tocsin import readers
from tocsin_detectors.alerts import AlertEvent, Severity
from tocsin_detectors.catalogue import Catalogue
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import RunConfig, StepVector, number_from_json
from tocsin_service.api import vectors
from tocsin_service.api.errors import ApiError
from tocsin_service.commands.verdict import Verdict, judge, read_vectors

Row = dict[str, float]
CATALOGUE = Catalogue()
NOW = 1_790_000_000.0


def noise(level: float, seed: str, share: float = 0.05) -> float:
    """A value around ``level``, the same for every ``seed``."""
    return level * (1 + random.Random(seed).gauss(0, share))  # noqa: S311 - noise that has to be the same every time


def verdict_of(rows: Iterable[Row], framework: str, first: int = 1) -> Verdict:
    steps = [StepVector(first + index, row) for index, row in enumerate(rows)]
    return judge(framework, steps, RunConfig(framework=framework))


def said(verdict: Verdict) -> list[tuple[str, str]]:
    return [(alert.rule, alert.metric) for alert in verdict.alerts.values()]


def fold(engine: Engine, steps: Iterable[StepVector]) -> list[AlertEvent]:
    return [event for step in steps for event in engine.feed(step) if isinstance(event, AlertEvent)]


# ---- NeMo-RL

NOT_MEASURED = dict.fromkeys(
    ("train/token_mult_prob_error", "train/gen_kl_error", "train/policy_kl_error", "train/sampling_importance_ratio"),
    0.0,
)


def nemo(step: int) -> Row:
    return {
        "train/loss": noise(0.02, f"loss{step}", 0.5),
        "train/grad_norm": noise(0.4, f"norm{step}"),
        "train/reward": noise(0.5, f"reward{step}"),
        "train/probs_ratio": noise(1.0, f"ratio{step}", 0.001),
    }


def test_nemo_placeholders_say_nothing() -> None:
    assert not verdict_of([nemo(step) | NOT_MEASURED for step in range(80)], "nemo-rl").alerts


def test_nemo_placeholders_between_measurements_are_passed_over() -> None:
    errors = [1.2, 0.0, 1.2, 0.0, 0.0, 1.2, 0.0, 1.2]
    rows = [nemo(step) | {"train/token_mult_prob_error": error} for step, error in enumerate(errors)]
    (alert,) = verdict_of(rows, "nemo-rl", first=0).alerts.values()
    assert (alert.rule, alert.metric) == ("mult_prob_error_high", "rollout_corr/mult_prob_error")
    assert (alert.onset_step, alert.fired_step, alert.evidence.value) == (0, 5, 1.2)


def test_what_nemo_measures_no_longer_is_missing() -> None:
    rows = [nemo(step) | {"train/gen_kl_error": 1e-3} for step in range(100)]
    rows += [nemo(step) | {"train/gen_kl_error": 0.0} for step in range(100, 180)]
    assert said(verdict_of(rows, "nemo-rl")) == [("metric_missing", "rollout_corr/k3_kl")]


def test_the_state_in_the_middle_of_placeholders_goes_on_alike() -> None:
    errors = [1.01, 0.0, 1.3, 0.0, 1.3, 0.0, 1.3, 1.3]
    steps = [StepVector(step, nemo(step) | {"train/token_mult_prob_error": x}) for step, x in enumerate(errors)]
    whole, half = Engine("run"), Engine("run")
    expected = fold(whole, steps)
    first = fold(half, steps[:4])
    half = Engine.restore("run", json.loads(json.dumps(half.snapshot())))
    assert first + fold(half, steps[4:]) == expected
    assert [event.alert.rule for event in expected] == ["mult_prob_error_high"]


def test_nemo_ratio_sentinel_is_no_ratio() -> None:
    names = ("train/probs_ratio", "train/probs_ratio_min", "train/probs_ratio_max")
    rows = [nemo(step) | dict.fromkeys(names, -1.0 if step % 3 else 1.0) for step in range(60)]
    assert not verdict_of(rows, "nemo-rl").alerts
    wrong = [nemo(step) | dict.fromkeys(names, -0.5) for step in range(10)]
    assert set(said(verdict_of(wrong, "nemo-rl"))) == {
        ("impossible_value", f"actor/ratio_{kind}") for kind in ("mean", "min", "max")
    }


@pytest.mark.parametrize("batches", [1, 8, 64])
def test_nemo_sums_the_loss_over_batches_and_that_is_no_jump(batches: int) -> None:
    rows = [nemo(step) for step in range(150)]
    assert not verdict_of([row | {"train/loss": row["train/loss"] * batches} for row in rows], "nemo-rl").alerts


def test_nemo_logs_rollout_metrics_twice() -> None:
    engine = Engine("run")
    for step in range(1, 60):
        early = {"train/mean_gen_tokens_per_sample": noise(300, f"{step}")}
        late = early | nemo(step) | {"train/grad_norm": math.nan if step == 50 else 0.4}
        events = fold(
            engine, [StepVector(step, early), StepVector(step, late), StepVector(step, {"timing/train/x": 1})]
        )
        assert [event.alert.rule for event in events] == (
            ["non_finite"] if step == 50 else ["non_finite"] * (step == 55)
        )
    assert (engine.attempt, engine.step) == (0, 59)


# ---- TRL


@pytest.mark.parametrize("prefix", ["", "train/"])
def test_trl_ppo_calls_training_data_val(prefix: str) -> None:
    rows = [
        {
            f"{prefix}objective/scores": noise(0.5, f"score{step}"),
            f"{prefix}objective/rlhf_reward": noise(0.4, f"reward{step}"),
            f"{prefix}val/ratio": -0.5,
            f"{prefix}val/clipfrac_avg": 1.5,
        }
        for step in range(20)
    ]
    assert set(said(verdict_of(rows, "trl"))) == {
        ("impossible_value", "actor/ratio_mean"),
        ("impossible_value", "critic/vf_clipfrac"),
    }


@pytest.mark.parametrize("names", [("policy_loss", "loss"), ("loss", "policy_loss")])
def test_trl_has_two_names_for_the_loss_and_one_is_meant(names: Sequence[str]) -> None:
    levels = {"policy_loss": 0.01, "loss": 0.5}  # with the entropy bonus, and without
    rows = [{name: noise(levels[name], f"{name}{step}") for name in names} for step in range(60)]
    rows += [dict.fromkeys(names, math.nan)]
    verdict = verdict_of(rows, "trl")
    assert {(alert.metric, alert.source) for alert in verdict.alerts.values()} == {
        ("actor/pg_loss", "policy_loss"),
        ("loss", "loss"),
    }


@pytest.mark.parametrize("name", ["eval_reward", "eval/reward"])
def test_trl_evaluation_at_the_step_of_training(name: str) -> None:
    train = [StepVector(step, {"reward": noise(0.8, f"{step}"), "loss": 0.01}) for step in range(10, 1000, 10)]
    engine = Engine("run")
    events = []
    for vector in train:
        events += fold(engine, [vector])
        if vector.step % 50 == 0:  # far below the training reward, and no fall of it
            events += fold(engine, [StepVector(vector.step, {name: 0.1, name.replace("reward", "loss"): 3.0})])
    assert not events
    assert (engine.attempt, engine.step) == (0, 990)


# ---- verl


def verl(step: int) -> Row:
    return {
        "actor/pg_loss": noise(0.01, f"loss{step}", 0.5),
        "actor/grad_norm": noise(0.3, f"norm{step}"),
        "actor/entropy": noise(0.6, f"entropy{step}"),
        "critic/score/mean": noise(0.5, f"score{step}"),
    }


def test_verl_validates_alone_at_step_0_and_again_at_a_resume() -> None:
    validation = {"val-core/openai/gsm8k/acc/mean@1": 0.4}
    engine = Engine("run")
    events = fold(engine, [StepVector(0, validation), *(StepVector(step, verl(step)) for step in range(1, 60))])
    assert not events
    events = fold(engine, [StepVector(50, validation), *(StepVector(step, verl(step)) for step in range(51, 99))])
    assert {event.alert.rule for event in events} <= {"step_went_back"}
    assert engine.step == 98


def test_verl_critic_warmup_without_actor_keys_is_the_plateau() -> None:
    pretraining = [1 + 7 * math.exp(-step / 6) for step in range(40)]
    rows: list[Row] = [
        {"critic/vf_loss": noise(level, f"{step}"), "actor/entropy": 0.6, "critic/values/mean": 0.1}
        for step, level in enumerate(pretraining)
    ]
    joint = [verl(step) | {"critic/values/mean": 0.1} for step in range(60)]
    calm = rows + [row | {"critic/vf_loss": noise(1.0, f"j{step}")} for step, row in enumerate(joint)]
    assert not verdict_of(calm, "verl").alerts
    left_behind = rows + [row | {"critic/vf_loss": noise(1.9, f"j{step}")} for step, row in enumerate(joint)]
    (alert,) = verdict_of(left_behind, "verl").alerts.values()
    assert alert.rule == "critic_loss_above_plateau"
    assert alert.fired_step <= 41 + 8


def test_verl_bypass_mode_reports_from_inside_the_actor() -> None:
    rows = [verl(step) | {"actor/rollout_corr/kl": 0.3, "actor/rollout_corr/k3_kl": 0.3} for step in range(8)]
    assert set(said(verdict_of(rows, "verl"))) >= {("mismatch_kl_gross", "rollout_corr/kl")}


@pytest.mark.parametrize("prefixes", [("perf/",), ("actor/perf/",), ("actor/perf/", "critic/perf/")])
def test_verl_renamed_its_memory_metrics(prefixes: Sequence[str]) -> None:
    rows = [
        verl(step)
        | {f"{prefix}max_memory_allocated_gb": noise(20 + 0.3 * step, f"{step}", 0.01) for prefix in prefixes}
        for step in range(250)
    ]
    alerts = verdict_of(rows, "verl").alerts.values()
    assert {(alert.rule, alert.metric) for alert in alerts} == {("memory_creep", "perf/max_memory_allocated_gb")}


def test_verl_writes_null_for_nan(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    rows = [
        {"step": step, "data": verl(step) | ({"actor/grad_norm": None} if step == 30 else {})} for step in range(1, 40)
    ]
    log.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    (alert,) = judge("run", read_vectors(log)).alerts.values()
    assert (alert.rule, alert.metric, alert.fired_step) == ("non_finite", "actor/grad_norm", 30)
    assert alert.severity is Severity.CRITICAL


# ---- prime-rl


def test_prime_rl_drops_nan_so_the_gradient_norm_goes_missing() -> None:
    rows = [
        {"loss/mean": noise(0.01, f"{step}", 0.5), "optim/grad_norm": noise(0.3, f"n{step}")} for step in range(160)
    ]
    for row in rows[100:]:
        del row["optim/grad_norm"]
    (alert,) = verdict_of(rows, "prime-rl").alerts.values()
    assert (alert.rule, alert.metric, alert.severity) == ("metric_missing", "actor/grad_norm", Severity.INFO)


# ---- numbers that are texts

PROGRESS = {"global_step/max_steps": "10/100", "elapsed_time": "1m 3s", "loss": 0.5, "memory(GiB)": 41.2}


def test_progress_is_a_step_for_the_reader(tmp_path: Path) -> None:
    log = tmp_path / "logging.jsonl"
    log.write_text(json.dumps(PROGRESS) + "\n", encoding="utf-8")
    (vector,) = readers.read(log)
    assert (vector.step, vector.metrics) == (10, {"loss": 0.5, "memory(GiB)": 41.2})


def test_progress_is_no_metric_for_the_service() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        number_from_json("10/100")
    body = json.dumps({"step": 10, "metrics": PROGRESS}).encode()
    with pytest.raises(ApiError) as refused:
        vectors.decode(body, "application/json", NOW, max_metrics=100, max_batch=10)
    assert refused.value.status == 422
    named = [problem["field"] for problem in refused.value.problems]
    assert [name in str(named) for name in PROGRESS] == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("np.float64(0.5)", 0.5),
        ("np.int64(3)", 3.0),
        ("np.float32(1e-05)", 1e-5),
        ("tensor(0.25, device='cuda:0')", 0.25),
        (" 0.125 ", 0.125),
        ("np.float64(nan)", math.nan),
        ("tensor(nan)", math.nan),
    ],
)
def test_a_printed_scalar_is_its_number(text: str, value: float) -> None:
    assert number_from_json(text) == pytest.approx(value, rel=0, nan_ok=True)


# ---- signs, units, counts


@pytest.mark.parametrize(
    ("framework", "name", "written", "canonical", "value"),
    [
        ("verl", "actor/ppo_kl", 0.02, "actor/ppo_kl", 0.02),
        ("slime", "train/ppo_kl", 0.02, "actor/ppo_kl", 0.02),
        ("areal", "ppo_actor/update/approx_kl/avg", -0.02, "actor/ppo_kl", 0.02),
        ("roll", "actor/policykl", -0.02, "actor/ppo_kl", 0.02),
        ("roll", "actor/approxkl", 0.02, "actor/ppo_kl_k2", 0.02),
        ("trl", "policy/approxkl_avg", 0.02, "actor/ppo_kl_k2", 0.02),
        ("areal", "ppo_actor/update/behave_approx_kl/avg", -0.01, "rollout_corr/kl", 0.01),
        ("areal", "ppo_actor/update/compute_logp/kl_div_direct/avg", 0.01, "rollout_corr/kl", 0.01),
        ("open-instruct", "val/stop_rate", 0.97, "response_length/clip_ratio", 0.03),
        ("nemo-rl", "train/baseline_reward/pct_1", 30.0, "critic/rewards/all_solved_ratio", 0.3),
    ],
)
def test_one_quantity_in_every_spelling(
    framework: str, name: str, written: float, canonical: str, value: float
) -> None:
    found = CATALOGUE.resolve(name, framework)
    assert found.canonical == canonical
    assert found.apply(written) == pytest.approx(value)


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("areal", "ppo_actor/kl_rewards/avg"),  # minus a coefficient times the KL
        ("prime-rl", "ref_kl/mean"),  # minus the KL
        ("roll", "actor/train_infer_diff_token_mean"),  # signed, so that it cancels
        ("open-instruct", "debug/vllm_local_reverse_kl"),  # an estimator of its own
        ("trl", "completions/mean_terminated_length"),  # 0 where no response terminated
    ],
)
def test_what_only_looks_alike_stays_apart(framework: str, name: str) -> None:
    assert CATALOGUE.resolve(name, framework).canonical == name


@pytest.mark.parametrize(
    ("framework", "name", "value", "rule"),
    [
        ("verl", "training/rollout_probs_diff_mean", 0.03, "probs_diff_high"),
        ("trl", "sampling/sampling_logp_difference/mean", 0.03, None),
        ("slime", "train/train_rollout_logprob_abs_diff", 0.03, None),
        ("nemo-rl", "train/token_mult_prob_error", 1.03, None),
        ("nemo-rl", "train/token_mult_prob_error", 1.2, "mult_prob_error_high"),
        ("trl", "sampling/sampling_logp_difference/mean", 0.4, "logprob_diff_high"),
        ("verl", "rollout_corr/k3_kl", 0.4, "mismatch_kl_gross"),
        ("nemo-rl", "train/gen_kl_error", 0.4, "mismatch_kl_gross"),
    ],
)
def test_every_measure_of_the_mismatch_meets_its_own_limit(
    framework: str, name: str, value: float, rule: str | None
) -> None:
    rows = [{name: noise(value, f"{step}", 0.001), "reward": 0.5} for step in range(12)]
    assert {alert for alert, _ in said(verdict_of(rows, framework))} == ({rule} if rule else set())


@pytest.mark.parametrize(
    ("framework", "name", "canonical"),
    [
        ("roll", "token/total_response_length/clip", "response_length/clip_count"),
        ("slime", "rollout/zero_std/count_1.0", "critic/rewards/zero_std_count/1.0"),
    ],
)
def test_counts_are_no_shares(framework: str, name: str, canonical: str) -> None:
    assert CATALOGUE.resolve(name, framework).canonical == canonical
    assert not verdict_of([{name: float(step % 40)} for step in range(60)], framework).alerts


# ---- step axes and resumes


@pytest.mark.parametrize("optimizer_steps", [1, 4])
def test_slime_rollouts_run_ahead_on_a_step_axis_of_their_own(optimizer_steps: int) -> None:
    def rollout(step: int) -> StepVector:
        return StepVector(step, {"rollout/raw_reward": noise(0.5, f"r{step}"), "rollout/truncated_ratio": 0.02})

    def train(step: int) -> StepVector:
        norm = math.nan if step == 30 else noise(0.3, f"n{step}")
        return StepVector(step, {"train/grad_norm": norm, "train/pg_loss": noise(0.01, f"l{step}", 0.5)})

    engine = Engine("run")
    events = fold(engine, [rollout(0)])
    for step in range(60):
        trained = range(step * optimizer_steps, (step + 1) * optimizer_steps)
        events += fold(engine, [rollout(step + 1), *map(train, trained)])
    assert {event.alert.rule for event in events} == {"non_finite"}
    assert {event.step for event in events if event.transition == "fired"} == {30}
    assert engine.attempt == 0


def test_areal_commits_several_parts_of_a_step_at_steps_of_their_own() -> None:
    # The logged step is never smaller than the last one plus 1: after a recovery, too, it only runs ahead.
    parts = ("ppo_actor/update/grad_norm", "ppo_actor/task_reward/avg", "timeperf/rollout")
    rows = [StepVector(step, {parts[step % 3]: noise(0.3, f"{step}")}) for step in range(300)]
    engine = Engine("run")
    assert not fold(engine, rows)
    assert (engine.attempt, engine.step) == (0, 299)


@pytest.mark.parametrize("stamp", ["then", "now", None])
def test_roll_replays_its_history_between_new_steps(stamp: str | None) -> None:
    def vector(step: int, at: float) -> StepVector:
        row = {"actor_train/grad_norm": noise(0.3, f"n{step}"), "critic/score/mean": noise(0.5, f"s{step}")}
        return StepVector(step, row, None if stamp is None else at)

    history = [vector(step, NOW + step) for step in range(200)]
    steps = history.copy()
    for step in range(200):
        steps.append(vector(step, NOW + step if stamp == "then" else NOW + 1000 + step))
        if step % 4 == 0:
            steps.append(vector(200 + step // 4, NOW + 1000 + step))
    engine = Engine("run")
    assert not fold(engine, steps)
    assert (engine.attempt, engine.step) == (0, 249)
