"""Throughput and health of the job: how fast, how full, how even."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, LevelShift, Trend
from tocsin_detectors.expressions import Expression
from tocsin_detectors.rules.base import Rule

MEMORY = (
    "perf/max_memory_allocated_gb",
    "perf/max_memory_reserved_gb",
    "perf/cpu_memory_used_gb",
)
STAGES = (
    "Look which stage grew: timing_s/gen (generation), timing_s/update_actor, timing_s/ref, timing_s/reward, timing_s/testing.",
    "Look at response lengths: longer answers take longer, and that is no fault.",
    "Look at the machines: a throttled GPU, a full disk, a slow reward service.",
)

# Silence is no vector, so the fold can't see it: the service derives this alert from the store, by the clock.
RUN_STALLED = Rule(
    name="run_stalled",
    family="throughput",
    metrics=("training/global_step",),
    tests=(),
    signs=1,
    among=1,
    recovery=1,
    severity=Severity.CRITICAL,
    title="No step has come for a long time",
    meaning=(
        "The run hasn't said that it has ended, and nothing has come for many times its usual step: the job hangs, was "
        "killed, or can't reach this service. Alerts of the run that fire go on firing."
    ),
    remedies=(
        "Look whether the job still runs, and at its last lines on the console.",
        "A hanging job: dump its stacks (py-spy) before killing it; look for a rank that waits in a collective.",
        "If the run ended as planned, end it with tocsin.finish(), or tell the service so (finished: true).",
    ),
    source="beyond the notes: dead man's switch; notes on RL metrics: timing metrics",
)

RULES = (
    RUN_STALLED,
    Rule(
        name="throughput_drop",
        family="throughput",
        metrics=("perf/throughput",),
        tests=(LevelShift("down", z=2.5, ratio=1.8, smooth=9, local=16, min_rows=24),),
        severity=Severity.WARNING,
        title="The throughput fell",
        meaning="Tokens per second and GPU fell to less than 60 % of their level and stay there.",
        remedies=STAGES,
        source="notes on RL metrics: verl appendix, throughput",
    ),
    Rule(
        name="step_time_up",
        family="throughput",
        metrics=("timing_s/step",),
        tests=(LevelShift("up", z=2.5, ratio=2.0, absolute=2.0, smooth=9, local=16, min_rows=24),),
        severity=Severity.WARNING,
        title="Steps take much longer",
        meaning="A step takes more than twice as long as it did, and has for several steps.",
        remedies=STAGES,
        source="notes on RL metrics: verl appendix, timing_s",
    ),
    Rule(
        name="mfu_drop",
        family="throughput",
        metrics=("perf/mfu/actor", "perf/mfu/critic"),
        tests=(LevelShift("down", z=2.5, ratio=1.67, absolute=0.03, smooth=9, local=16, min_rows=24),),
        severity=Severity.WARNING,
        title="The hardware's utilisation fell",
        meaning="The share of the GPUs' arithmetic that is used fell by 40 % and more of its level.",
        remedies=STAGES,
        source="notes on RL metrics: verl appendix, perf/mfu",
    ),
    Rule(
        name="memory_creep",
        family="throughput",
        metrics=MEMORY,
        tests=(Trend("up", z=4.5, ratio=1.5, block=8, blocks=16, skip=30),),
        severity=Severity.WARNING,
        title="Memory grows steadily",
        meaning="Memory in use has grown by half and more over the last hundred steps; at this pace it ends in an out-of-memory error.",
        remedies=(
            "Save a checkpoint before it ends by itself.",
            "Look for what is kept over steps: metrics with graphs attached, caches, growing replay buffers.",
            "Limit fragmentation (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
        ),
        source="notes on RL metrics: verl appendix, perf/max_memory_*",
    ),
    Rule(
        name="load_imbalance",
        family="throughput",
        metrics=("seqlen_imbalance",),
        expression=Expression("({global_seqlen/balanced_max} - {global_seqlen/balanced_min}) / {global_seqlen/mean}"),
        tests=(Bound(above=0.3),),
        signs=12,
        among=16,
        severity=Severity.INFO,
        title="Ranks get unequal loads",
        meaning="Even after balancing, the fullest rank has 30 % of the mean more to do than the emptiest: the others wait for it.",
        remedies=(
            "Balance by sequence length (verl trainer.balance_batch=True), or use dynamic batch sizes (use_dynamic_bsz).",
        ),
        source="notes on RL metrics: verl appendix, global_seqlen",
    ),
)
