"""From a message to what the model wrote: links to the dashboard, which open nothing for those who have no token."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.service.told import ALERT, INCIDENT, NEWS, OVER, REWARD, many

from tocsin_service.access.links import Links
from tocsin_service.delivery import News, Reason, alertmanager, webhook
from tocsin_service.delivery.plain import text_of, text_of_many
from tocsin_service.delivery.slack_message import render, render_reply, render_summary
from tocsin_service.presentation import Presentation
from tocsin_service.rollouts.places import folder_of

BASE, SECRET = "https://tocsin.example", "0123456789abcdef" * 2
VIEW = f"{BASE}/dashboard/#/runs/qwen-7b/incidents/i1"
SAMPLES = f"{VIEW}?show=samples"
TOKEN = "alice-9a0feaa0"  # noqa: S105 - a test's token
HOSTILE = "<!channel> <b>|x> @here"
WRITTEN = "what nobody without a token may read"


def shown(rollouts: Path | None = None, lang: Any = "en") -> Presentation:
    return Presentation(lang, links=Links(BASE, SECRET), rollouts=rollouts)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder with rollouts of the run."""
    folder = folder_of(tmp_path, INCIDENT.run)
    folder.mkdir()
    (folder / f"{120:016d}-{120:016d}-{'0' * 32}.parquet").touch()
    return tmp_path


def messages(news: News, presented: Presentation) -> dict[str, str]:
    """What each kind of receiver is sent, as text."""
    blocks = render(news, presented)["blocks"]
    labelled = alertmanager.render(news.incident, news.incident, news.alerts, None, presented)
    return {
        "slack": "\n".join(block["text"]["text"] for block in blocks if block["type"] == "section"),
        "plain": text_of(news, presented)[1],
        "webhook": str(webhook.render(news, presented)),
        "alertmanager": str(labelled["annotations"]),
    }


def test_every_message_leads_to_the_samples(kept: Path) -> None:
    said = messages(NEWS, shown(kept))
    assert f"*Dashboard* <{VIEW}|curves and evidence>" in said["slack"]
    assert f"*What the model wrote* <{SAMPLES}|samples at the onset and before it>" in said["slack"]
    assert f"Dashboard: curves and evidence ({VIEW})\n" in said["plain"]
    assert f"What the model wrote: samples at the onset and before it ({SAMPLES})" in said["plain"]
    for kind in ("webhook", "alertmanager"):
        assert f"'dashboard': '{VIEW}'" in said[kind]
        assert f"'samples': '{SAMPLES}'" in said[kind]
    assert f"*模型写了什么* <{SAMPLES}|起始处与之前的样本>" in messages(NEWS, shown(kept, "zh"))["slack"]


def test_what_texts_say_nothing_of_leads_to_the_curves_alone(kept: Path) -> None:
    data = replace(NEWS, alerts=(replace(ALERT, family="throughput"),))
    for said in (*messages(data, shown(kept)).values(), *messages(NEWS, shown(kept / "elsewhere")).values()):
        assert VIEW in said
        assert SAMPLES not in said
    for said in messages(NEWS, Presentation(rollouts=kept)).values():
        assert "dashboard/" not in said


def test_one_alert_about_texts_is_enough(kept: Path) -> None:
    mixed = replace(NEWS, alerts=(replace(ALERT, family="throughput"), REWARD))
    assert all(SAMPLES in said for said in messages(mixed, shown(kept)).values())


def test_replies_are_brief_and_summaries_lead_to_all_runs(kept: Path) -> None:
    over = replace(NEWS, reason=Reason.RESOLVED, incident=OVER)
    assert "dashboard" not in str(render_reply(over, shown(kept)))
    assert f"<{BASE}/dashboard/#/|the dashboard>, `GET /v1/incidents`" in str(render_summary(many(3), shown(kept)))
    assert f"the dashboard ({BASE}/dashboard/#/)" in text_of_many(many(3), shown(kept))[1]


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    folder_of(tmp_path, HOSTILE).mkdir()
    (folder_of(tmp_path, HOSTILE) / f"{1:016d}-{1:016d}-{'0' * 32}.parquet").touch()
    said = messages(replace(NEWS, incident=replace(INCIDENT, run=HOSTILE)), shown(tmp_path))
    address = f"{BASE}/dashboard/#/runs/{quote(HOSTILE, safe='')}/incidents/i1?show=samples"
    assert set(re.sub(r"[-\w.%/:#?=]", "", address)) == set()
    for text in said.values():
        assert address in text


@pytest.fixture
def collapsed(make_api: Any, tmp_path: Path, hook: Any) -> Any:
    """A service with tokens and a receiver, and a run whose reward went to 0 and that kept what it wrote."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    from tests.service.rollout_rows import rows  # noqa: PLC0415 - needs pyarrow

    api = make_api(
        public_url=BASE, link_secret=SECRET, tokens=(TOKEN,), webhook=hook.address, rollout_dir=tmp_path / "rollouts"
    )
    bearer = {"authorization": f"Bearer {TOKEN}"}
    written = rows(8, response=WRITTEN)
    assert api.call("POST", "/v1/runs/run/rollouts?step=48", written, bearer).status == 202
    rewards = [{"critic/score/mean": 0.8 if step < 50 else 0.0} for step in range(60)]
    api.post([{"step": step, "metrics": one} for step, one in enumerate(rewards)], headers=bearer)
    return api


def test_a_signed_link_alone_opens_no_rollouts(collapsed: Any, hook: Any) -> None:
    told = hook.next()
    incident = told["incident"]["id"]
    assert told["samples"] == f"{BASE}/dashboard/#/runs/run/incidents/{incident}?show=samples"
    page = collapsed.get(Links("", SECRET).make("incident", "run", incident)).data.decode()
    assert f'href="{told["samples"]}"' in page
    assert f'href="{told["dashboard"]}"' in page
    assert WRITTEN not in page
    (alert,) = (one["id"] for one in told["alerts"])
    assert collapsed.get(f"/v1/runs/run/alerts/{alert}/samples").status == 401
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert WRITTEN in collapsed.call("GET", f"/v1/runs/run/alerts/{alert}/samples", headers=bearer).data.decode()
