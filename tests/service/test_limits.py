"""How often a token and a run may be used: the rates alone, and in a service."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin_service.access.limits import BURST_SECONDS, Rates

BODY = {"step": 1, "metrics": {"loss": 1}}
TENSORS = "/v1/runs/run/tensors?step=1"


class TestRates:
    def test_a_burst_then_the_rate(self) -> None:
        now = [100.0]
        rates = Rates(2.0, clock=lambda: now[0])
        burst = round(2.0 * BURST_SECONDS)
        assert [rates.take("a") for _ in range(burst + 1)] == [0.0] * (burst + 1)
        assert rates.take("a") == pytest.approx(0.5)
        assert rates.take("b") == 0.0
        now[0] += 0.5
        assert rates.take("a") == 0.0
        assert rates.take("a") > 0.0

    def test_what_is_refused_costs_nothing(self) -> None:
        now = [0.0]
        rates = Rates(1.0, clock=lambda: now[0])
        while rates.take("a") == 0.0:
            pass
        for _ in range(1000):
            assert 0.0 < rates.take("a") <= 1.0
        now[0] += 1.0
        assert rates.take("a") == 0.0

    def test_over_a_long_time_the_rate_holds(self) -> None:
        now = [0.0]
        rates = Rates(3.0, clock=lambda: now[0])
        taken = 0
        for _ in range(10_000):
            now[0] += 0.01
            taken += rates.take("a") == 0.0
        assert 3.0 * 100 <= taken <= 3.0 * (100 + BURST_SECONDS) + 1

    def test_a_slow_rate_still_lets_the_first_through(self) -> None:
        rates = Rates(0.001, clock=lambda: 0.0)
        assert rates.take("a") == 0.0
        assert rates.take("a") == pytest.approx(1000 - BURST_SECONDS)

    def test_without_a_rate_nothing_is_remembered(self) -> None:
        rates = Rates(0.0)
        assert {rates.take(key) for key in range(1000)} == {0.0}
        assert len(rates) == 0

    def test_made_up_keys_fill_no_memory_and_free_nobody(self) -> None:
        rates = Rates(1.0, most=100, clock=lambda: 0.0)
        while rates.take("busy") == 0.0:
            pass
        for key in range(10_000):
            rates.take(key)
            assert rates.take("busy") > 0.0
        assert len(rates) == 100


def refused(api: Any, what: str) -> float:
    text = api.get("/metrics").data.decode()
    (line,) = [line for line in text.splitlines() if line.startswith(f'tocsin_requests_limited_total{{what="{what}"}}')]
    return float(line.split()[1])


class TestService:
    def test_writing_to_a_run(self, make_api: Any) -> None:
        api = make_api(max_run_rate=0.001)
        assert api.post(BODY).status == 202
        for answer in (api.post(BODY), api.call("POST", TENSORS, b"x" * 1000), api.call("PUT", "/v1/runs/run", {})):
            assert answer.status == 429
            assert "max_run_rate" in answer.json["error"]
            assert 900 < int(answer.headers["retry-after"]) <= 990
        assert api.post(BODY, run="another").status == 202
        assert api.get("/v1/runs/run").status == 200
        assert api.get("/v1/runs/run").json["vectors"] == 1
        assert (refused(api, "run"), refused(api, "token")) == (3.0, 0.0)

    def test_one_token(self, make_api: Any) -> None:
        api = make_api(max_token_rate=0.001, tokens=("trainer ingest,read first-token", "second-token"))
        first, second = ({"authorization": f"Bearer {name}-token"} for name in ("first", "second"))
        assert api.post(BODY, headers=first).status == 202
        answer = api.call("GET", "/v1/runs", headers=first)
        assert answer.status == 429
        assert "max_token_rate" in answer.json["error"]
        assert int(answer.headers["retry-after"]) > 900
        metrics = api.call("GET", "/metrics", headers=second)
        assert 'tocsin_requests_limited_total{what="token"} 1.0' in metrics.data.decode()
        assert api.get("/healthz").status == api.get("/readyz").status == 200  # probes always get through
        assert api.call("GET", "/v1/runs", headers={"authorization": "Bearer wrong-token"}).status == 401

    def test_without_tokens_all_share_one_rate(self, make_api: Any) -> None:
        api = make_api(max_token_rate=0.001)
        assert api.get("/v1/runs").status == 200
        assert api.post(BODY).status == 429

    def test_zero_is_no_bound(self, make_api: Any) -> None:
        api = make_api(max_token_rate=0, max_run_rate=0)
        assert {api.post(BODY).status for _ in range(20)} == {202}
