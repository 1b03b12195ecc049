"""News for the tests of receivers: an ordinary piece, and hostile ones."""

from __future__ import annotations

import math
from dataclasses import replace
from urllib.parse import quote

from hypothesis import strategies as st

from tocsin_detectors.alerts import Alert, Evidence, Incident, Severity, State
from tocsin_detectors.entries import RunConfig
from tocsin_service.access.links import Links
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.delivery import News, Reason
from tocsin_service.presentation import Presentation

NOW = 1_700_000_000.0

ALERT = Alert(
    id="a1",
    run="qwen-7b",
    attempt=1,
    rule="kl_collapse",
    family="kl",
    severity=Severity.CRITICAL,
    metric="actor/kl_loss",
    source="kl",
    onset_step=120,
    fired_step=121,
    evidence=Evidence(math.inf, baseline=0.0123456789, limit=0.1, window=64, detail="d"),
    summary="s",
    meaning="m",
    remedies=("r",),
    incident="i1",
)
REWARD = replace(ALERT, id="a2", rule="reward_collapse", source="reward", evidence=Evidence(math.nan), onset_step=121)
INCIDENT = Incident(
    id="i1",
    run="qwen-7b",
    attempt=1,
    rule="model_collapse",
    title="Model collapse: kl, reward broke together",
    severity=Severity.CRITICAL,
    onset_step=120,
    first_sign="a1",
    last_good_step=119,
    members=("a1", "a2"),
    meaning="The policy has left the region of the reference.",
    remedies=("Stop the run.", "Resume from step 119.", "Lower the learning rate.", "A fourth."),
    opened_step=122,
)
CONFIG = RunConfig(labels={"team": "rl"}, link="https://wandb.ai/team/runs/7?a=1&b=2")
NEWS = News(Reason.OPENED, INCIDENT, (ALERT, REWARD), CONFIG)
OVER = replace(INCIDENT, state=State.RESOLVED, resolved_step=200)
ACKNOWLEDGED = Acknowledgement("qwen-7b", "i1", "Mei", "I look after it.", NOW)


class _Links(Links):
    """Links without a signature: the golden messages don't depend on how it is made."""

    def make(self, purpose: str, run: str, incident: str) -> str:
        where = "/".join(quote(part, safe="", errors="replace") for part in (purpose, run, incident))
        return f"https://tocsin.example/{where}?s=1&t=2"


def linked(lang: str = "en") -> Presentation:
    """With links to the service and pictures."""
    links = _Links("https://tocsin.example", "a secret for links")
    return Presentation("zh" if lang == "zh" else "en", links=links, pictures=True)


def many(count: int) -> list[News]:
    """Incidents of so many runs: every third critical, every fifth over."""
    severities = (Severity.CRITICAL, Severity.WARNING, Severity.WARNING)
    found = []
    for number in range(count):
        incident = replace(INCIDENT, id=f"i{number}", run=f"run-{number}", severity=severities[number % 3])
        if number % 5 == 4:
            incident = replace(incident, state=State.RESOLVED, resolved_step=200)
        reason = Reason.RESOLVED if incident.state is State.RESOLVED else Reason.OPENED
        found.append(News(reason, incident, (ALERT,), CONFIG))
    return found


_NASTY = [
    "<!channel>",
    "<@U1|x>",
    "@everyone",
    "](https://evil)",
    "&lt;",
    "`*_~|",
    "\n# h\r\n",
    "😀",
    "\ud800",
    "\u202e",
    "｜",
]
_PIECES = st.one_of(st.sampled_from(_NASTY), st.text(max_size=20))
HOSTILE_TEXTS = st.builds(
    lambda pieces, times: "".join(pieces) * times, st.lists(_PIECES, max_size=6), st.integers(1, 300)
)
HOSTILE_LINKS = st.one_of(
    st.none(),
    HOSTILE_TEXTS,
    st.builds("https://x/{}".format, HOSTILE_TEXTS),
    st.builds(lambda length: "https://x/" + "&" * length, st.integers(0, 4000)),
)
_FLOATS = st.floats(allow_nan=True, allow_infinity=True)
_STEPS = st.integers(0, 2**63 - 1)
_EVIDENCE = st.builds(Evidence, _FLOATS, st.none() | _FLOATS, st.none(), st.none() | _FLOATS)
_ALERTS = st.builds(
    lambda source, rule, evidence, step: replace(ALERT, source=source, rule=rule, evidence=evidence, onset_step=step),
    HOSTILE_TEXTS,
    HOSTILE_TEXTS,
    _EVIDENCE,
    _STEPS,
)
_INCIDENTS = st.builds(
    lambda texts, remedies, severity, state, step: replace(
        INCIDENT,
        **dict(zip(("id", "run", "rule", "title", "meaning"), texts, strict=True)),
        remedies=tuple(remedies),
        severity=severity,
        state=state,
        onset_step=step,
        resolved_step=step,
    ),
    st.tuples(*[HOSTILE_TEXTS] * 5),
    st.lists(HOSTILE_TEXTS, max_size=5),
    st.sampled_from(Severity),
    st.sampled_from(State),
    _STEPS,
)
HOSTILE_NEWS = st.builds(
    News,
    reason=st.sampled_from(Reason),
    incident=_INCIDENTS,
    alerts=st.lists(_ALERTS, max_size=12).map(tuple),
    config=st.builds(RunConfig, link=HOSTILE_LINKS, labels=st.dictionaries(HOSTILE_TEXTS, HOSTILE_TEXTS, max_size=3)),
    acknowledged=st.none() | st.builds(Acknowledgement, HOSTILE_TEXTS, HOSTILE_TEXTS, HOSTILE_TEXTS, HOSTILE_TEXTS),
)
