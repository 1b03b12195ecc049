"""POST /v1/runs/{run}/tensors: what is computed and stored, and that whatever else comes in is refused in words."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.tensor_bodies import KL, bf16, kl, pack, padded, post, ragged, raw, series, tensors_of

from tocsin_service.api.models import MeasuredModel
from tocsin_service.api.tensor_query import TensorQuery
from tocsin_service.tensors.names import NAMES

pytest.importorskip("torch")

BATCH = ragged()


# What is computed


def test_metrics_of_both_layouts(api: Any) -> None:
    bodies = [
        BATCH,
        {**BATCH, "response_lengths": BATCH["response_lengths"].astype(np.int64)},
        {**BATCH, "cu_seqlens": np.concatenate([[0], BATCH["response_lengths"].cumsum()]).astype(np.int32)},
        padded(BATCH),
        {**padded(BATCH), "response_mask": padded(BATCH)["response_mask"].astype(np.int64)},
    ]
    del bodies[2]["response_lengths"]
    answers = [post(api, pack(body), step=step) for step, body in enumerate(bodies)]
    for answer in answers:
        assert answer.status == 200, answer.data
        MeasuredModel.model_validate(answer.json)
        common = answer.json["metrics"].keys() & answers[0].json["metrics"].keys()  # padded ones have a width, too
        assert {name: answer.json["metrics"][name] for name in common} == pytest.approx(
            {name: answers[0].json["metrics"][name] for name in common}, rel=1e-6, abs=1e-9
        )
        assert answer.json["metrics"][KL] == pytest.approx(kl(BATCH), rel=1e-5)
        assert (answer.json["accepted"], answer.json["warnings"]) == (1, [])
    found = series(api, KL)
    assert found["steps"] == [0, 1, 2, 3, 4]
    assert found["values"][0] == answers[0].json["metrics"][KL]


def test_options_choose(api: Any) -> None:
    plain = post(api, pack(BATCH), step=1, metrics="off_policy").json["metrics"]
    assert not any("probs_diff" in name or "rollout_is" in name for name in plain)
    chosen = post(
        api,
        pack(BATCH),
        step=2,
        rollout_is="token",
        rollout_is_threshold="0.5_2.0",
        rollout_is_batch_normalize="true",
        rollout_rs="token_k1,seq_mean_k3",
        rollout_rs_threshold="2.0",
        metrics=["off_policy,is", "rs"],
        limits=[32, 64],
    ).json["metrics"]
    assert {"rollout_corr/rollout_is_batch_norm_factor", "rollout_corr/rollout_rs_token_k1_mean"} <= chosen.keys()
    strict = post(api, pack(BATCH), step=3, compat="strict").json["metrics"]
    assert strict["rollout_corr/empty_rows"] == 0


def test_what_is_not_finite_comes_as_text(api: Any) -> None:
    tensors = {**BATCH, "old_log_probs": BATCH["old_log_probs"].copy()}
    tensors["old_log_probs"][3] = np.nan
    answer = post(api, pack(tensors))
    assert answer.json["metrics"][KL] == "NaN"
    (finding,) = (one for one in answer.json["findings"] if one["kind"] == "non_finite")
    assert finding["data"] == {"tensor": "old_log_probs", "tokens": 1}
    assert series(api, KL)["values"] == ["NaN"]
    api.settle()
    assert any(alert["rule"] == "non_finite" for alert in api.get("/v1/alerts").json["alerts"])


def test_half_precision_is_taken_with_a_warning(api: Any) -> None:
    for step, convert in enumerate((bf16, lambda values: values.astype(np.float16))):
        tensors = {**BATCH, "rollout_log_probs": convert(BATCH["rollout_log_probs"])}
        answer = post(api, pack(tensors), step=step)
        assert answer.status == 200
        (warning,) = answer.json["warnings"]
        assert re.match("rollout_log_probs is B?F16.*send F32", warning)
        assert answer.json["metrics"][KL] == pytest.approx(kl(BATCH), abs=0.01)


def test_domains_are_named_in_the_metadata(api: Any) -> None:
    rows = len(BATCH["response_lengths"])
    tensors = {**BATCH, "domain": np.arange(rows) % 2, "scores": np.ones(rows, np.float32)}
    good = post(api, pack(tensors, {"domains": '["math", "code"]', "format": "pt"}))
    assert good.status == 200, good.data
    for bad in ("math", '{"a": 1}', '["a", 1]', '[""]', json.dumps(["x" * 65]), json.dumps(["a"] * 300), "[" * 90_000):
        answer = post(api, pack(tensors, {"domains": bad}))
        assert answer.status == 422
        assert "domains must be a JSON list" in answer.json["error"]
    assert post(api, pack(tensors, {"domains": '["a", "a"]'})).status == 422


def test_a_repetition_changes_nothing(api: Any) -> None:
    for body in (BATCH, BATCH, ragged(seed=5)):  # the last is another batch under the same name
        answer = post(api, pack(body), sequence="a-1", attempt=0)
    assert (answer.json["accepted"], answer.json["repeated"]) == (0, 1)
    assert api.get("/v1/runs/run").json["vectors"] == 1
    vector = {"step": 1, "metrics": {"loss": 1}, "sequence": "a-1", "attempt": 0}
    assert api.post(vector).json["accepted"] == 1  # a vector's names are others


def test_a_repetition_without_a_sequence_is_known_by_its_numbers(api: Any) -> None:
    first, second = (post(api, pack(BATCH), time=1.7e9).json for _ in range(2))
    assert (first["accepted"], second["accepted"]) == (1, 0)
    assert first["metrics"] == second["metrics"]


def test_the_metrics_join_the_step(api: Any) -> None:
    api.post({"step": 1, "metrics": {"actor/entropy": 0.5}, "time": 1.7e9})
    api.post({"step": 2, "metrics": {"actor/entropy": 0.4}, "time": 1.7e9 + 60})
    post(api, pack(BATCH), step=1, time=1.7e9 + 30)  # the trainer is a step ahead already
    api.settle()
    run = api.get("/v1/runs/run").json
    assert (run["attempt"], run["vectors"], run["pending"]) == (0, 3, 0)
    assert series(api, KL)["steps"] == [1]


def test_the_names_are_those_of_the_library() -> None:
    from tocsin_detectors.rollout_corr.measure import (  # noqa: PLC0415 - needs torch
        LAYOUT,
        ROW_LEVEL,
        TOKEN_LEVEL,
    )

    assert set(NAMES) == {*TOKEN_LEVEL, *ROW_LEVEL, *LAYOUT}


def test_the_options_are_those_of_the_library() -> None:
    from tocsin_detectors.rollout_corr.options import Options  # noqa: PLC0415 - needs torch

    library = {option.name for option in fields(Options) if option.init}
    ours = set(TensorQuery.model_fields) - {"step", "time", "attempt", "sequence", "file"}
    assert library - ours == {"return_weights", "return_mask", "domains"}  # nothing is returned; names are in the body
    assert ours <= library


# What is refused


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"compat": "trl"}, "compat is 'trl'; valid: verl, strict"),
        ({"metrics": "kl,nonsense"}, "metrics has 'nonsense'; valid: off_policy, is, rs"),
        ({"rollout_is": "geometric"}, "rollout_is is 'geometric'; valid: token, sequence"),
        ({"rollout_is": "token", "rollout_is_threshold": "-1"}, "rollout_is_threshold is '-1'; valid: a number > 0"),
        ({"rollout_rs": "token"}, "rollout_rs has 'token'; valid: token_k1"),
        ({"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5,1,2"}, "3 thresholds for 1 options"),
        ({"kl_estimators": "k9"}, "kl_estimators has 'k9'; valid: k1, abs, k2, k3"),
        ({"entropy_aggregation": "sum"}, "entropy_aggregation is 'sum'; valid: token-mean"),
        ({"limits": [64, 32]}, "limits are"),
        ({"clip_low": "-1"}, "clip_low"),
        ({"rolout_is": "token"}, "no parameter 'rolout_is'; send any of: step, time"),
        ({"return_weights": "true"}, "no parameter 'return_weights'"),
        ({"step": -1}, "query.step"),
        ({"step": "1.5"}, "query.step"),
        ({"step": 2**53}, "query.step"),
        ({"time": 5}, "query.time"),
        ({"time": "nan"}, "query.time"),
        ({"attempt": "x"}, "query.attempt"),
        ({"sequence": ""}, "query.sequence"),
        ({"sequence": "a\nb"}, "query.sequence"),
        ({"rollout_is_batch_normalize": "maybe"}, "query.rollout_is_batch_normalize"),
        ({"limits": "many"}, "query.limits"),
        ({"limits": 10**30}, "query.limits"),
        ({"response_limit": 0}, "query.response_limit"),
        ({"advantage_std": "x"}, "advantage_std is 'x'; valid: sample, population"),
        ({"file": "x.safetensors"}, "reads no files"),
    ],
)
def test_wrong_queries(shared_api: Any, query: dict[str, Any], problem: str) -> None:
    answer = post(shared_api, pack(BATCH), **query)
    assert answer.status == 422
    assert problem in answer.data.decode()


def test_a_step_is_needed(shared_api: Any) -> None:
    assert shared_api.call("POST", "/v1/runs/run/tensors", pack(BATCH)).status == 422


def without(name: str) -> dict[str, np.ndarray]:
    return {one: tensor for one, tensor in BATCH.items() if one != name}


ROWS = len(BATCH["response_lengths"])
TOKENS = BATCH["old_log_probs"].size
HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "0 bytes"),
    "JSON": (b'{"step": 1, "metrics": {}}', "is it safetensors"),
    "a pickle": (b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00cos\nsystem\n.", "header"),
    "a header longer than the body": ((1000).to_bytes(8, "little") + b"{}", "can't have"),
    "a huge header": ((2**60).to_bytes(8, "little") + b"{}", "more than the"),
    "a broken header": ((3).to_bytes(8, "little") + b'{"a', "not valid JSON"),
    "no tensor": (pack({}), "no tensor"),
    "an unknown tensor": (pack({**BATCH, "uid": np.zeros(3)}) if "uid" else b"", "no tensor 'uid'"),
    "a tensor of another dtype": (pack(BATCH, old_log_probs={"dtype": "F8_E5M2"}), "F8_E5M2"),
    "a wrong shape in the header": (pack(BATCH, old_log_probs={"shape": [TOKENS, 2]}), "span"),
    "a negative shape": (pack(BATCH, old_log_probs={"shape": [-TOKENS]}), "extents"),
    "overlapping offsets": (pack(BATCH, rollout_log_probs={"data_offsets": [0, 4 * TOKENS]}), "overlaps"),
    "a body cut short": (pack(BATCH)[:-4], "the body has only"),
    "a body with more behind it": (pack(BATCH) + b"1234", "4 bytes behind"),
    "no layout": (pack(without("response_lengths")), "response_mask"),
    "two layouts": (pack({**BATCH, "cu_seqlens": np.zeros(3, np.int32)}), "send one of"),
    "nothing to compute of": (pack({"prompt_lengths": np.ones(3, np.int32)}), "response_lengths"),
    "lengths that are too long": (
        pack({**BATCH, "response_lengths": BATCH["response_lengths"] + 1}),
        "the sum of response_lengths",
    ),
    "negative lengths": (pack({**BATCH, "response_lengths": -BATCH["response_lengths"]}), "negative"),
    "lengths that are floats": (pack({**BATCH, "response_lengths": np.ones(ROWS, np.float32)}), "integers"),
    "lengths that wrap around": (
        pack({**BATCH, "response_lengths": np.array([2**63 - 1, 2**63 - 1, TOKENS + 2], np.int64)}),
        "response_lengths",
    ),
    "one endless row": (pack({**BATCH, "response_lengths": np.array([2**62], np.int64)}), "response_lengths"),
    "bounds that don't begin at 0": (
        pack({**without("response_lengths"), "cu_seqlens": np.array([1, TOKENS + 1], np.int32)}),
        "cu_seqlens",
    ),
    "bounds that go back": (
        pack({**without("response_lengths"), "cu_seqlens": np.array([0, TOKENS + 5, TOKENS], np.int32)}),
        "negative",
    ),
    "no bounds": (pack({**without("response_lengths"), "cu_seqlens": np.zeros(0, np.int32)}), "cu_seqlens"),
    "log-probs that are integers": (pack({**BATCH, "old_log_probs": np.zeros(TOKENS, np.int32)}), "old_log_probs"),
    "log-probs of another shape": (pack({**BATCH, "old_log_probs": np.zeros((2, 3), np.float32)}), "old_log_probs"),
    "a number for log-probs": (pack({**BATCH, "old_log_probs": np.zeros((), np.float32)}), "old_log_probs"),
    "bytes that are no bools": (
        pack({**padded(BATCH), "response_mask": np.full((ROWS, 64), 2, np.uint8)}, response_mask={"dtype": "BOOL"}),
        "bytes other than 0 and 1",
    ),
    "a flat mask": (pack({**padded(BATCH), "response_mask": np.ones(ROWS, bool)}), "response_mask"),
    "an empty mask": (pack({**padded(BATCH), "response_mask": np.zeros((ROWS, 64), bool)}), "no valid token"),
    "no rows": (
        pack({name: np.zeros((0, 64), tensor.dtype) for name, tensor in padded(BATCH).items()}),
        "valid token",
    ),
    "no width": (pack({name: np.zeros((8, 0), tensor.dtype) for name, tensor in padded(BATCH).items()}), "valid token"),
    "row values of another length": (pack({**BATCH, "scores": np.zeros(ROWS + 1, np.float32)}), "scores"),
    "domains out of range": (pack({**BATCH, "domain": np.full(ROWS, 2**40), "scores": np.ones(ROWS)}), "domain"),
}


@pytest.mark.parametrize(("body", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_bodies(shared_api: Any, body: bytes, problem: str) -> None:
    answer = post(shared_api, body)
    assert answer.status == 422, answer.data
    assert problem in answer.json["error"]
    assert shared_api.get("/v1/runs/run").status == 404  # nothing was stored


def test_masks_that_weigh_are_refused_where_that_is_not_verl_s_behaviour(shared_api: Any) -> None:
    for mask in (np.full((ROWS, 64), 0.5, np.float32), np.full((ROWS, 64), 2, np.int64)):
        answer = post(shared_api, pack({**padded(BATCH), "response_mask": mask}), compat="strict")
        assert answer.status == 422
        assert "0 or 1" in answer.json["error"]


def test_compressed_bodies_are_refused_with_the_reason(shared_api: Any) -> None:
    for encoding in ("gzip", "zstd", "br"):
        answer = post(shared_api, b"x", {"content-encoding": encoding})
        assert answer.status == 415
        assert "ragged" in answer.json["error"]


def test_a_body_of_unknown_length_is_refused(shared_api: Any) -> None:
    head = "Transfer-Encoding: chunked\r\nConnection: close\r\n"
    with raw(shared_api, head, b"3\r\nabc\r\n0\r\n\r\n") as connection:
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 411")
    assert b"send the Content-Length" in answer


@pytest.mark.parametrize("length", [2**31, 10**18, 10**19])
def test_too_large_a_body_is_refused_before_it_is_sent(shared_api: Any, length: int) -> None:
    with raw(shared_api, f"Content-Length: {length}\r\nExpect: 100-continue\r\n") as connection:
        assert connection.recv(10_000).startswith(b"HTTP/1.1 413")


def test_a_connection_that_ends_early(api: Any) -> None:
    body = pack(BATCH)
    for sent in (0, 4, 50, len(body) - 1):
        with raw(api, f"Content-Length: {len(body)}\r\n", body[:sent]) as connection:
            connection.shutdown(socket.SHUT_WR)
            connection.recv(10_000)  # returns when the service has seen it
    assert post(api, body).status == 200
    admission = tensors_of(api).admission
    assert (admission.requests, admission.bytes) == (0, 0)


# Files of the same machine


def test_a_file_by_its_name(make_api: Any, tmp_path: Path) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    (folder / "step-1.safetensors").write_bytes(pack(BATCH))
    (folder / "broken").write_bytes(b"x" * 100)
    (folder / "link").symlink_to(folder / "step-1.safetensors")
    (tmp_path / "outside").write_bytes(pack(BATCH))
    api = make_api(tensor_dir=folder, max_tensor_bytes=50_000)
    answer = post(api, b"", file="step-1.safetensors")
    assert answer.json["metrics"][KL] == pytest.approx(kl(BATCH), rel=1e-5)
    for name, problem in (
        ("link", "symbolic link"),
        ("../outside", "without a path"),
        (str(tmp_path / "outside"), "without a path"),
        ("none", "No such file"),
        ("broken", "header"),
    ):
        answer = post(api, b"", file=name)
        assert answer.status == 422
        assert problem in answer.json["error"]
    (folder / "large").write_bytes(pack(ragged(rows=400)))
    assert post(api, b"", file="large").status == 413
    assert post(api, b"", file="step-1.safetensors", compat="x").status == 422
