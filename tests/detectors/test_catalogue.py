"""The metric catalogue: its data, and the way from a trainer's names to the canonical ones."""

import itertools
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin_detectors.catalogue import FRAMEWORKS, Catalogue, Metric, guess_framework, lookup, metrics
from tocsin_detectors.catalogue.metric import FAMILIES, TRANSFORMS
from tocsin_detectors.catalogue.pattern import Pattern, fill

SHARED = Path(__file__).resolve().parents[3] / "shared"
CATALOGUE = Catalogue()
ALIASES: dict[str, dict[str, list[str | dict[str, Any]]]] = json.loads(
    resources.files("tocsin_detectors.catalogue").joinpath("aliases.json").read_text(encoding="utf-8")
)
SAMPLES = {"n": "8", "i": "0", "option": "token_k1", "stat": "mean", "pick": "best", "spread": "std"}
SAMPLES |= {"signed": "seq_sum_k1", "unsigned": "seq_max_k3"}
SAMPLES |= {"source": "openai/gsm8k", "stage": "reward", "word": "acc", "rest": "seq_mean"}

# Every metric of the VeRL summary of 2026-04-23, braces as in a shell.
VERL_SUMMARY = """
actor/{pg_loss,pg_clipfrac,pg_clipfrac_lower,ppo_kl,entropy,kl_loss,kl_coef,reward_kl_penalty,grad_norm,lr}
actor/reward_kl_penalty_coeff
critic/{vf_loss,vf_clipfrac,vpred_mean,grad_norm,lr,vf_explained_var}
critic/{score,rewards,advantages,returns,values}/{mean,max,min}
{response_length,response_length_non_aborted,prompt_length}/{mean,max,min,clip_ratio}
response/aborted_ratio
{num_turns,tool_call_counts,val-aux/num_turns}/{mean,max,min}
timing_s/{gen,ref,values,adv,update_critic,update_actor,reward,old_log_prob,testing,save_checkpoint,step}
timing_per_token_ms/{gen,ref,values,adv,update_critic,update_actor}
perf/{total_num_tokens,time_per_step,throughput,max_memory_allocated_gb,max_memory_reserved_gb,cpu_memory_used_gb}
perf/mfu/{actor,critic}
training/{global_step,epoch,rollout_actor_probs_pearson_corr}
training/rollout_probs_diff_{valid,max,mean,std}
global_seqlen/{min,max,minmax_diff,balanced_min,balanced_max,mean}
{val-core,val-aux}/openai/gsm8k/acc/{mean,std}@8
{val-core,val-aux}/openai/gsm8k/acc/{best,worst,maj}@8/{mean,std}
rollout_corr/{training_ppl,training_log_ppl,rollout_ppl,rollout_log_ppl,kl,k3_kl,ppl_ratio,chi2_token,chi2_seq}
rollout_corr/log_ppl_{diff,abs_diff,diff_max,diff_min}
rollout_corr/rollout_is_{mean,max,min,std,eff_sample_size,ratio_fraction_high,ratio_fraction_low,oob_ratio}
rollout_corr/rollout_is_{batch_norm_factor,seq_mean,seq_std,seq_max,seq_min,seq_max_deviation}
rollout_corr/rollout_is_seq_fraction_{high,low}
rollout_corr/rollout_rs_{token,seq_sum,seq_mean}_{k1,k2,k3}_{mean,max,min,std,fraction_high,fraction_low}
rollout_corr/rollout_rs_{token,seq_sum,seq_mean}_{k1,k2,k3}_seq_{mean,max,min,std,max_deviation}
rollout_corr/rollout_rs_{token,seq_sum,seq_mean}_{k1,k2,k3}_seq_{fraction_high,fraction_low,masked_fraction}
rollout_corr/rollout_rs_{token,seq_sum,seq_mean}_{k1,k2,k3}_masked_fraction
rollout_corr/rollout_rs_seq_max_{k2,k3}_{mean,max,min,std,fraction_high,masked_fraction}
rollout_corr/rollout_rs_seq_max_{k2,k3}_seq_{mean,max,min,std,max_deviation,fraction_high,masked_fraction}
rollout_corr/rollout_rs_{masked_fraction,seq_masked_fraction}
"""


def spelled_out(line: str) -> list[str]:
    choices = [part.split(",") for part in re.split(r"[{}]", line)]
    return ["".join(parts) for parts in itertools.product(*choices)]


VERL = [name for line in VERL_SUMMARY.strip().splitlines() for name in spelled_out(line)]

# The reference table groups what is related; the catalogue keeps apart what has another unit or meaning.
APART = {
    ("openrlhf", "kl"): "actor/reward_kl_penalty",  # one key for both; the reward penalty is OpenRLHF's default
    ("trl", "objective/kl"): "actor/reward_kl_sum",  # per sequence, not per token
    ("areal", "ppo_actor/update/approx_kl/avg"): "actor/ppo_kl",  # its negation
    ("roll", "actor/policykl"): "actor/ppo_kl",
    ("slime", "rollout/zero_std/count_{reward}"): "critic/rewards/zero_std_count/{reward}",  # counts
    ("miles", "rollout/zero_std/count_{reward}"): "critic/rewards/zero_std_count/{reward}",
    ("skyrl", "reward/num_zero_variance_filtered"): "critic/rewards/zero_std_count",
    ("prime-rl", "train/agg/all/{agent}/solved_none"): "critic/rewards/all_failed_ratio",  # one half each
    ("prime-rl", "train/agg/all/{agent}/solved_all"): "critic/rewards/all_solved_ratio",
    ("nemo-rl", "train/baseline_reward/pct_0"): "critic/rewards/all_failed_ratio",
    ("nemo-rl", "train/baseline_reward/pct_1"): "critic/rewards/all_solved_ratio",
    ("roll", "group/all_incorrect_groups_ratio"): "critic/rewards/all_failed_ratio",
    ("roll", "group/all_correct_groups_ratio"): "critic/rewards/all_solved_ratio",
    ("tinker-cookbook", "env/all/by_group/frac_all_bad"): "critic/rewards/all_failed_ratio",
    ("tinker-cookbook", "env/all/by_group/frac_all_good"): "critic/rewards/all_solved_ratio",
    ("verl", "response_length_non_aborted/mean"): "response_length_non_aborted/mean",
    ("trl", "episode"): "training/episode",  # samples, not passes over the data
    ("roll", "token/total_response_length/clip"): "response_length/clip_count",
    ("tinker-cookbook", "rollout_errors/total"): "response/aborted_count",
    ("slime", "perf/actor_train_tflops"): "perf/tflops/actor",
    ("miles", "perf/actor_train_tflops"): "perf/tflops/actor",
    ("verl", "fully_async/count/stale_samples_processed"): "training/off_policy/stale_samples",
}


def shared_json(*parts: str) -> Any:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not here: it lies beside the repository")
    return json.loads(path.read_text(encoding="utf-8"))


def sample(template: str) -> str:
    names = re.findall(r"\{(\w+)\}", template)
    return fill(template, {name: SAMPLES.get(name, f"x{name}") for name in names})


def every_alias() -> Iterator[tuple[str, str, str, str | None, int]]:
    """Framework, canonical template, alias, transform, priority."""
    for framework, rows in ALIASES.items():
        for target, entries in rows.items():
            for priority, entry in enumerate(entries, start=1):
                if isinstance(entry, str):
                    yield framework, target, entry, None, priority
                else:
                    yield framework, target, entry["name"], entry.get("transform"), priority


def metric_of(name: str, framework: str | None = None) -> Metric:
    metric = CATALOGUE.resolve(name, framework).metric
    assert metric is not None, (name, framework)
    return metric


# ---- the data


@pytest.mark.parametrize("metric", metrics().values(), ids=lambda metric: metric.name)
def test_metric_is_sane(metric: Metric) -> None:
    assert metric.family in FAMILIES
    assert metric.unit
    assert metric.formula
    assert metric.healthy.endswith(".")
    assert metric.source
    assert metric.low is None or metric.high is None or metric.low < metric.high
    assert metric.scale.linear > 0
    if metric.scale.kind == "logit":
        assert (metric.low, metric.high) == (0, 1)
    if metric.unit == "share":
        assert metric.low == 0
    assert lookup(metric.name) is metric
    assert CATALOGUE.resolve(metric.name).canonical == metric.name


def test_names_are_unique() -> None:
    text = resources.files("tocsin_detectors.catalogue").joinpath("metrics.json").read_text(encoding="utf-8")
    assert len(metrics()) == len(json.loads(text)) == text.count('"name":')


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("actor/entropy", (0.0, 3.0, -1e-7), (-0.1, math.nan)),
        ("actor/pg_clipfrac", (0.0, 1.0), (-0.1, 1.1)),
        ("rollout_corr/rollout_is_eff_sample_size", (0.5, 1.0000001), (1.01,)),
        ("training/rollout_actor_probs_pearson_corr", (-1.0, 1.0), (1.1, -1.1)),
        ("critic/vf_explained_var", (-50.0, 1.0), (1.1,)),
        ("actor/ppo_kl", (-3.0, 3.0, math.inf), (math.nan,)),
        ("rollout_corr/k3_kl", (0.0, math.inf), (-0.1,)),
        ("rollout_corr/chi2_seq", (-1.0, 1e17), (-1.1,)),
        ("rollout_corr/training_ppl", (1.0, 1e300), (0.99,)),
        ("rollout_corr/rollout_ppl", (1.0,), (0.0,)),
        ("rollout_corr/training_log_ppl", (0.0, 12.0), (-0.1,)),
        ("rollout_corr/rollout_log_ppl", (0.0,), (-0.1,)),
        ("rollout_corr/mult_prob_error", (1.0, 2.0), (0.0, 0.99)),
        ("training/rollout_probs_diff_std", (0.0, math.sqrt(0.5)), (0.8, -0.1)),
    ],
)
def test_possible_range(name: str, inside: tuple[float, ...], outside: tuple[float, ...]) -> None:
    metric = metric_of(name)
    assert all(metric.allows(value) for value in inside)
    assert not any(metric.allows(value) for value in outside)


@pytest.mark.parametrize("statistic", ["mean", "max", "min", "seq_mean", "seq_max", "seq_min"])
@pytest.mark.parametrize("level", ["token", "seq_sum", "seq_mean", "seq_max"])
def test_only_the_k1_rejection_statistics_have_a_sign(level: str, statistic: str) -> None:
    for estimator in ("k2", "k3"):
        metric = metric_of(f"rollout_corr/rollout_rs_{level}_{estimator}_{statistic}")
        assert (metric.low, metric.high) == (0, None)
    name = f"rollout_corr/rollout_rs_{level}_k1_{statistic}"
    if level == "seq_max":  # no such option
        assert lookup(name) is None
    else:
        assert metric_of(name).allows(-1.0)


def test_no_alias_is_ambiguous_within_a_framework() -> None:
    seen = [(framework, name) for framework, _, name, _, _ in every_alias()]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("framework", ALIASES)
def test_aliases_of(framework: str) -> None:
    for owner, target, name, transform, priority in every_alias():
        if owner != framework:
            continue
        assert set(re.findall(r"\{\w+\}", target)) <= set(re.findall(r"\{\w+\}", name)), name
        found = CATALOGUE.resolve(sample(name), framework)
        if sample(name) in metrics():
            assert found.canonical == sample(name) == target  # the same name as verl's
            continue
        assert found.canonical == sample(target), name
        assert found.metric is not None, name
        assert found.transform == (TRANSFORMS[transform] if transform else None), name
        assert found.priority == priority, name


def test_framework_keys() -> None:
    assert set(ALIASES) == {*FRAMEWORKS, "trl-async"}


def test_no_alias_takes_a_validation_name_for_training() -> None:
    spelled_val = set()
    for framework, target, name, _, _ in every_alias():
        if name.startswith(("eval", "val/", "val_", "val-", "validation", "test_", "test/")):
            if name.startswith("val/") and not target.startswith("val-"):
                spelled_val.add(framework)
            else:
                assert target.startswith("val-"), name
    assert spelled_val == {"trl", "open-instruct"}  # their val/ratio and the like are of training


# ---- the reference


def test_reference_aliases_resolve() -> None:
    reference = shared_json("reference", "metric_aliases.json")
    met = set()
    for canonical, frameworks in reference.items():
        for framework, names in frameworks.items():
            for written in names:
                name = written.removeprefix("1-")
                key = (framework, name.removeprefix("train/") if framework in {"openrlhf", "trl"} else name)
                expected = APART.get(key, canonical)
                if key in APART:
                    met.add(key)
                assert metric_of(sample(name), framework).name == expected, (framework, name)
                assert metric_of(sample(name), framework) is lookup(expected)
    assert met == set(APART)


def test_reference_canonical_names_are_known() -> None:
    for canonical in shared_json("reference", "metric_aliases.json"):
        metric_of(canonical)


@pytest.mark.parametrize("name", VERL)
def test_verl_metric_is_known(name: str) -> None:
    assert CATALOGUE.resolve(name, "verl").canonical in {name, "actor/reward_kl_penalty_coeff", "timing_s/step"}
    metric_of(name, "verl")
    flat = CATALOGUE.resolve(name.replace("/", "_").replace("openai_", "openai-"), "verl")
    assert flat.canonical == CATALOGUE.resolve(name.replace("openai/", "openai-"), "verl").canonical


# ---- real runs

SIGNALS = {
    "critic/score/mean": r"reward|critic[/_]score[/_]mean|mean_reward",
    "actor/grad_norm": r"(actor/)?grad_norm",
    "actor/entropy": r"(actor/)?entropy(_loss)?",
    "response_length/mean": r"response_length/mean|completion_length|completions ?/ ?mean_length",
    "actor/pg_loss": r"actor/pg_loss|loss|Training Loss|loss_pg",
    "critic/advantages/mean": r"mean_advantage|critic/advantages/mean",
    "timing_s/step": r"timing_s[/_]step|step_time",
}


def test_main_signals_of_real_runs() -> None:
    covered: dict[str, int] = dict.fromkeys(SIGNALS, 0)
    for run in shared_json("corpus", "index.json"):
        names = run["metrics"]
        framework = guess_framework(names)
        for stated in (framework, run["framework"], None):
            canonical = {CATALOGUE.resolve(name, stated).canonical for name in names}
            for signal, pattern in SIGNALS.items():
                if any(re.fullmatch(pattern, name) for name in names):
                    assert signal in canonical, (run["id"], stated, signal)
                    covered[signal] += stated is framework
        for key in ("kl", "critic/kl", "actor/kl_loss", "actor/reward_kl_penalty"):
            assert key not in names or metric_of(key, framework).family == "kl"
        expected = None if run["framework"].startswith("custom") else run["framework"].split("/")[0]
        assert framework == expected, run["id"]
        known = sum(CATALOGUE.resolve(name, framework).metric is not None for name in names)
        print(f"{run['id']}: {framework}, {known} of {len(names)} names known")
    print(covered)
    assert min(covered.values()) > 0


# ---- resolving


@pytest.mark.parametrize(
    ("name", "framework", "canonical"),
    [
        ("kl", "trl", "actor/kl_loss"),
        ("kl", "openrlhf", "actor/reward_kl_penalty"),
        ("kl", "trl-async", "rollout_corr/k3_kl"),
        ("kl", None, "actor/kl_loss"),
        ("reward", "trl-async", "critic/score/mean"),
        ("train/kl", "trl", "actor/kl_loss"),
        ("train/rewards/format/mean", "unsloth", "gdpo/format/mean"),
        ("rewards / MyFunc / std", None, "gdpo/MyFunc/std"),
        ("Training Loss", None, "actor/pg_loss"),
        ("Train/Mean Reward", None, "critic/score/mean"),
        ("train/critic/score/mean", "verl", "critic/score/mean"),
        ("actor/rollout_corr/chi2_token", "verl", "rollout_corr/chi2_token"),
        ("actor/rollout_corr/rollout_rs_token_k1_mean", None, "rollout_corr/rollout_rs_token_k1_mean"),
        ("critic_score_mean", None, "critic/score/mean"),
        ("response_length_mean", None, "response_length/mean"),
        ("rollout_corr_kl", "verl", "rollout_corr/kl"),
        ("timing_s_agent_loop", None, "timing_s/agent_loop"),
        ("val-core_textcraft_acc_mean@1", "verl", "val-core/textcraft/acc/mean@1"),
        ("val-core/openai/gsm8k/acc/mean_at_8", "verl", "val-core/openai/gsm8k/acc/mean@8"),
        ("test_score/openai/gsm8k", "verl", "val-core/openai/gsm8k/score/mean@1"),
        ("actor/pg_loss@sum", "roll", "actor/pg_loss"),
        ("math/critic/kl", "ROLL", "actor/reward_kl_penalty"),
        ("mean_reward", None, "critic/score/mean"),
        ("rewards/mean", "trl", "critic/score/mean"),
        ("policy_loss", None, "actor/pg_loss"),
        ("value_loss", None, "critic/vf_loss"),
        ("approx_kl", None, "actor/ppo_kl"),
        ("clip_fraction", None, "actor/pg_clipfrac"),
        ("clipfrac", None, "actor/pg_clipfrac"),
        ("explained_variance", None, "critic/vf_explained_var"),
        ("ratio_var", None, "actor/ratio_var"),
        ("val/ratio", None, "actor/ratio_mean"),
        ("train/val/ratio_var", "trl", "actor/ratio_var"),
        ("val/advantages_mean", "open_instruct", "critic/advantages/mean"),
        ("eval/gsm8k", "slime", "val-core/gsm8k/reward/mean@1"),
        ("eval/aime-2024-truncated_ratio", "slime", "val-aux/aime-2024/truncated_ratio/mean@1"),
        ("eval/step", "slime", "eval/step"),
        ("global_step", "open-instruct", "training/episode"),
        ("eval_math_pass4", "openrlhf", "val-core/math/acc/mean@4"),
        ("critic/kl", "verl", "actor/reward_kl_penalty"),
        # nobody's
        ("train_loss", "trl", "train_loss"),
        ("train/foo", None, "train/foo"),
        ("", None, ""),
    ],
)
def test_resolve(name: str, framework: str | None, canonical: str) -> None:
    assert CATALOGUE.resolve(name, framework).canonical == canonical


@pytest.mark.parametrize("framework", [*FRAMEWORKS, "trl-async", None])
def test_validation_never_becomes_training(framework: str | None) -> None:
    prefixes = ["eval_", "eval/", "validation/", "val-core/", "val_", "train/eval_"]
    bodies = ["reward", "kl", "entropy", "loss", "reward/mean", "rewards/f/mean", "critic/kl", "critic/score/mean"]
    bodies += ["timing_s/step", "response_length/mean", "completions/mean_length", "a/effective/b/reward/mean"]
    for prefix, body in itertools.product(prefixes, bodies):
        found = CATALOGUE.resolve(prefix + body, framework)
        assert found.metric is None or found.metric.family == "validation", (prefix + body, found)


@pytest.mark.parametrize(
    ("name", "framework", "value", "canonical_value"),
    [
        ("val/stop_rate", "open-instruct", 0.9, 0.1),
        ("actor/policykl", "roll", 0.02, -0.02),
        ("actor/ppo_kl_negated", None, 0.02, -0.02),
        ("train/baseline_reward/pct_0", "nemo-rl", 25.0, 0.25),
        ("actor/lr(1e-4)", "verl", 0.01, 1e-6),
        ("actor/ppo_kl", "verl", 0.02, 0.02),
    ],
)
def test_transform(name: str, framework: str | None, value: float, canonical_value: float) -> None:
    found = CATALOGUE.resolve(name, framework)
    assert found.apply(value) == pytest.approx(canonical_value)
    assert math.isnan(found.apply(math.nan))
    assert math.isinf(found.apply(math.inf))


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("train/token_mult_prob_error", (0.0,)),
        ("train/gen_kl_error", (0.0,)),
        ("train/policy_kl_error", (0.0,)),
        ("train/sampling_importance_ratio", (0.0,)),
        ("train/probs_ratio", (-1.0,)),
        ("train/probs_ratio_min", (-1.0,)),
        ("train/probs_ratio_max", (-1.0,)),
        ("train/kl_penalty", ()),  # 0 if there is no penalty, and at the first step
    ],
)
@pytest.mark.parametrize("framework", ["nemo-rl", None])
def test_values_that_mean_not_measured(name: str, absent: tuple[float, ...], framework: str | None) -> None:
    assert CATALOGUE.resolve(name, framework).absent == absent


@pytest.mark.parametrize(
    ("names", "framework"),
    [
        (("loss", "policy_loss"), "trl"),
        (("actor/loss", "actor/pg_loss"), "verl"),
        (("rewards/mean", "score/mean"), None),
        (("train/reward", "train/mean_total_reward"), "nemo-rl"),
        (("rollout/reward_mean", "score", "reward"), "openrlhf"),
        (("objective/kl0_avg", "objective/kl2_avg"), "open-instruct"),
    ],
)
def test_names_of_one_metric_have_an_order(names: tuple[str, ...], framework: str | None) -> None:
    found = [CATALOGUE.resolve(name, framework) for name in names]
    assert len({one.canonical for one in found}) == 1
    assert len({one.priority for one in found}) == len(found)


PARTS = sorted({part for _, _, name, _, _ in every_alias() for part in name.split("/")})
PREFIXES = ["val-core/", "eval/", "train/", "rewards/", "timing_s_", "eval_"]
NAMES = (
    st.text(max_size=600)
    | st.lists(st.sampled_from(PARTS), max_size=5).map("/".join)
    | st.builds("{}{}".format, st.sampled_from(PREFIXES), st.text())
)


@settings(deadline=None)
@given(NAMES, st.sampled_from([None, *ALIASES, "TRL", "nobody"]))
def test_any_text_resolves_and_stays(name: str, framework: str | None) -> None:
    found = CATALOGUE.resolve(name, framework)
    assert CATALOGUE.resolve(found.canonical, framework).canonical == found.canonical
    if found.metric is not None:
        assert CATALOGUE.resolve(found.canonical).canonical == found.canonical
    assert Catalogue().resolve(name, framework) == found


def test_the_cache_is_bounded_and_forgetting_changes_nothing() -> None:
    catalogue = Catalogue()
    before = catalogue.resolve("kl", "trl")
    for number in range(20_000):
        catalogue.resolve(f"unknown_{number}")
    assert len(catalogue._cache) < 20_000
    assert catalogue.resolve("kl", "trl") == before
    longest = "reward" * 1000
    assert catalogue.resolve(longest).canonical == longest
    assert (longest, None) not in catalogue._cache


# ---- guessing


@pytest.mark.parametrize("framework", [key for key in FRAMEWORKS if key != "custom"])
def test_a_framework_is_known_by_its_names(framework: str) -> None:
    names = [sample(name) for owner, _, name, _, _ in every_alias() if owner == framework]
    names += [name for name in VERL if framework == "verl"]
    assert guess_framework(names) == framework
    assert guess_framework(reversed(names)) == framework


@pytest.mark.parametrize(
    ("names", "stated", "framework"),
    [
        (["completions/mean_length", "frac_reward_zero_std", "reward"], None, "trl"),
        (["train/completions/mean_length", "train/loss", "train/reward", "train/kl"], None, "trl"),
        (["actor/pg_loss", "critic/score/mean"], None, "verl"),
        (["actor_pg_loss", "critic_score_mean"], None, "verl"),
        (["mean_reward", "loss_pg", "mean_advantage"], None, None),
        ([], None, None),
        (["actor/pg_loss", "critic/score/mean"], "unsloth", "trl"),
        (["actor/pg_loss", "critic/score/mean"], "my own trainer", "verl"),
        (["kl", "reward", "weight_sync_time_s"], "trl", "trl-async"),
        (["train/kl", "train/reward", "train/loss", "train/grad_norm", "train/buffer_qsize"], None, "trl-async"),
        (["actor/pg_loss", "critic/score/mean", "actor_train/grad_norm", "token/response_length/mean"], None, "roll"),
    ],
)
def test_guess(names: list[str], stated: str | None, framework: str | None) -> None:
    assert guess_framework(names, stated) == framework


# ---- patterns and import


@pytest.mark.parametrize(
    ("template", "name", "parts"),
    [
        ("val-core/{source}/{var}/mean@{n}", "val-core/a/b/acc/mean@16", {"source": "a/b", "var": "acc", "n": "16"}),
        ("val-core/{source}/{var}/mean@{n}", "val-core/a/mean@16", None),
        ("x/{a}/{a}", "x/1/1", {"a": "1"}),
        ("x/{a}/{a}", "x/1/2", None),
        ("x/{a}", "x/", None),
        ("{domain}/critic/kl", "math/critic/kl", {"domain": "math"}),
        ("rs_{option}_mean", "rs_token_k4_mean", None),
    ],
)
def test_pattern(template: str, name: str, parts: dict[str, str] | None) -> None:
    assert Pattern(template).match(name) == parts
    if parts is not None:
        assert fill(template, parts) == name


def test_importing_reads_nothing_and_needs_only_the_standard_library() -> None:
    code = (
        "import sys, tocsin_detectors.catalogue as c; from tocsin_detectors.catalogue import metric;"
        "print(metric.metrics.cache_info().currsize, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["0", "False"]
