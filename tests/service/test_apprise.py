"""Apprise: the same facts in plain text, by the real library, to a web server in the receivers' place."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.service.told import ACKNOWLEDGED, HOSTILE_NEWS, INCIDENT, NEWS, OVER, linked, many

from tocsin_service.delivery import News, Reason, Retry, Sent
from tocsin_service.delivery.apprise import MOST_TARGETS, MOST_UNFINISHED, Apprise, check_urls
from tocsin_service.delivery.files import make_receiver, read_plan
from tocsin_service.delivery.making import Surroundings
from tocsin_service.delivery.plain import Plain, neutral, text_of, text_of_many
from tocsin_service.settings.secret import Secret

pytest.importorskip("apprise")
# It looks for a module of the standard library that is going away, when its plugins are loaded.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

GOLDEN = Path(__file__).parents[1] / "data" / "messages"


@dataclass
class Server:
    """Takes posts on any path and answers with the status that was set for it."""

    port: int = 0
    posts: list[tuple[str, bytes]] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    gates: dict[str, threading.Event] = field(default_factory=dict)  # answers on this path wait for it

    def url(self, path: str, schema: str = "json") -> str:
        return f"{schema}://user:very-secret@127.0.0.1:{self.port}/{path}"

    def told(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(body) for at, body in self.posts if at.strip("/") == path]


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            path = self.path.strip("/")
            if path in found.gates:
                found.gates[path].wait(60)
            found.posts.append((self.path, body))
            self.send_response(found.statuses.get(path, 200))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.daemon_threads = True
    found = Server(web.server_address[1])
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        for gate in found.gates.values():
            gate.set()
        web.shutdown()
        thread.join()
        web.server_close()


@pytest.fixture
def make(server: Server) -> Iterator[Callable[..., Apprise]]:
    with ExitStack() as stack:

        def make(*paths: str, **options: Any) -> Apprise:
            receiver = Apprise("\n".join(server.url(path) for path in paths), **options)
            stack.callback(receiver.close)
            return receiver

        yield make


def test_sent(make: Callable[..., Apprise], server: Server) -> None:
    assert make("a", shown=linked()).tell(NEWS) == Sent()
    (told,) = server.told("a")
    assert (told["title"], told["message"]) == text_of(NEWS, linked())
    assert told["type"] == "failure"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_golden_messages(lang: str) -> None:
    shown = linked(lang)
    over = replace(NEWS, reason=Reason.RESOLVED, incident=OVER, acknowledged=ACKNOWLEDGED)
    told = [text_of(NEWS, shown), text_of(over, shown), text_of_many(many(30), shown)]
    text = "\n\n---\n\n".join(f"{title}\n\n{body}" for title, body in told)
    assert text + "\n" == (GOLDEN / f"plain_{lang}.txt").read_text(encoding="utf-8")


def test_xml_too(server: Server) -> None:
    receiver = Apprise(server.url("x", "xml"))
    assert receiver.tell(replace(NEWS, incident=replace(INCIDENT, run="<b>&"))) == Sent()
    ((_, body),) = server.posts
    assert b"&lt;b&gt;&amp;" in body
    assert b"<b>" not in body


def test_many_are_one_message(make: Callable[..., Apprise], server: Server) -> None:
    assert make("a").summarise(many(10_000)) == Sent()
    (told,) = server.told("a")
    assert told["title"] == "🔔 10000 incidents of 10000 runs"
    assert "… and 9980 more" in told["message"]
    assert len(told["message"]) < 20_000


@pytest.mark.parametrize(
    ("news", "kind"),
    [
        ([replace(NEWS, reason=Reason.RESOLVED, incident=OVER)], "success"),
        (many(2)[1:], "warning"),
        (many(5), "failure"),
    ],
)
def test_the_kind_of_a_message(make: Callable[..., Apprise], server: Server, news: list[News], kind: str) -> None:
    assert make("a").summarise(news) == Sent()
    assert server.told("a")[0]["type"] == kind


@pytest.mark.parametrize("status", [301, 400, 401, 404, 408, 429, 500, 503])
def test_every_failure_is_tried_again(make: Callable[..., Apprise], server: Server, status: int) -> None:
    server.statuses["a"] = status
    receiver = make("a")
    assert receiver.tell(NEWS) == Retry("refused, or not reached: json in line 1")
    server.statuses["a"] = 200
    assert receiver.tell(NEWS) == Sent()


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert Apprise(f"json://127.0.0.1:{port}").tell(NEWS) == Retry("refused, or not reached: json in line 1")


def test_who_has_it_does_not_get_it_again(make: Callable[..., Apprise], server: Server) -> None:
    server.statuses["b"] = 500
    receiver = make("a", "b", "c")
    for _ in range(3):
        assert receiver.tell(NEWS) == Retry("refused, or not reached: json in line 2")
    server.statuses["b"] = 200
    assert receiver.tell(NEWS) == Sent()
    assert [len(server.told(path)) for path in "abc"] == [1, 4, 1]
    # The next piece of news is for all.
    assert receiver.tell(replace(NEWS, reason=Reason.ESCALATED)) == Sent()
    assert [len(server.told(path)) for path in "abc"] == [2, 5, 2]


def test_one_that_hangs_holds_up_nobody_and_is_not_told_twice(make: Callable[..., Apprise], server: Server) -> None:
    server.gates["b"] = threading.Event()
    receiver, other = make("a", "b", timeout=0.3), replace(NEWS, reason=Reason.ESCALATED)
    for news in (NEWS, other):  # for the second it is busy
        result = receiver.tell(news)
        assert isinstance(result, Retry)
        assert "json in line 2" in result.reason
    server.gates["b"].set()
    receiver._timeout = 60
    assert receiver.tell(NEWS) == Sent()
    assert receiver.tell(other) == Sent()
    assert [len(server.told(path)) for path in "ab"] == [2, 2]


def test_what_it_remembers_is_bounded(make: Callable[..., Apprise]) -> None:
    receiver = make("a")
    receiver._targets = []  # so that the loop is quick
    for number in range(MOST_UNFINISHED + 10):
        receiver._having[str(number)] = set()
    receiver.tell(NEWS)
    assert len(receiver._having) <= MOST_UNFINISHED


def test_a_long_text_is_cut_for_those_who_take_none(server: Server) -> None:
    receiver = Apprise(server.url("a"))
    (target,) = receiver._targets
    plugin = target._notify.__self__[0]  # type: ignore[attr-defined]
    plugin.body_maxlen = 300
    assert receiver.tell(NEWS) == Sent()
    (told,) = server.told("a")
    assert len(told["message"]) <= 300
    assert "qwen-7b" in told["message"]


def test_new_urls_are_used_without_a_restart(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "urls"
    file.write_text(f"# whom to tell\n\n{server.url('a')}\n{server.url('b')}\n")
    receiver = Apprise(Secret.of_file(file, check_urls))
    server.statuses["b"] = 500
    assert receiver.tell(NEWS) == Retry("refused, or not reached: json in line 4")
    file.write_text(f"{server.url('c')}\n{server.url('a')}\n")
    assert receiver.tell(NEWS) == Sent()
    assert [len(server.told(path)) for path in "abc"] == [1, 1, 1]
    file.write_text("nonsense")
    assert receiver.tell(NEWS) == Sent()
    assert [len(server.told(path)) for path in "abc"] == [2, 1, 2]


def test_from_the_file_of_receivers(server: Server, tmp_path: Path) -> None:
    (tmp_path / "urls").write_text(server.url("a"))
    file = tmp_path / "receivers.yml"
    file.write_text(f"receivers:\n  - name: others\n    apprise: {{urls_file: {tmp_path}/urls}}\n    lang: zh\n")
    (described,) = read_plan(file).receivers
    receiver = make_receiver(described, Surroundings(), file)
    assert receiver.tell(NEWS) == Sent()
    assert "模型崩溃" in server.told("a")[0]["title"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("json://127.0.0.1\nnonsense://very-secret", "line 2"),
        ("tgram://very-secret", "line 1"),
        ("very-secret", "line 1"),
        ("", "1 to 50"),
        ("# json://very-secret", "1 to 50"),
        ("\n".join(f"json://very-secret/{number}" for number in range(MOST_TARGETS + 1)), "1 to 50"),
    ],
)
def test_urls_that_are_none(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        Apprise(text)
    assert "very-secret" not in str(raised.value)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ValueError, match=r"pip install 'tocsin\[apprise\]'"):
        Apprise("json://127.0.0.1")


def test_the_urls_are_in_no_log_and_no_representation(
    make: Callable[..., Apprise], server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.statuses["a"] = 403
    receiver = make("a")
    results = [receiver.tell(NEWS), receiver.tell(NEWS)]
    with pytest.raises(ValueError, match="line 1"):
        Apprise("tgram://very-secret")
    assert "very-secret" not in caplog.text + repr(results) + repr(receiver)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("@all @everyone", "＠all ＠everyone"),
        ("val/mean@8", "val/mean@8"),
        ("<!channel> < @U1>", "‹!channel> ‹ ＠U1>"),
        ("[x](https://evil)", "[x] (https://evil)"),
        ("a < b", "a < b"),
    ],
)
def test_texts_that_call_nobody(text: str, shown: str) -> None:
    assert neutral(text) == shown
    assert Plain().text(text) == shown


@given(HOSTILE_NEWS)
@settings(max_examples=25, deadline=None)
def test_hostile_texts(news: News) -> None:
    shown = linked()
    for title, text in (text_of(news, shown), text_of_many([news] * 3, shown)):
        assert title.isprintable()
        assert all(line.isprintable() for line in text.split("\n"))
        assert len(title) <= 200
        assert len(text) < 20_000
        for link in (news.config.link or "", shown.link("incident", news.incident) or ""):
            text = text.replace(link, "") if link else text  # noqa: PLW2901
        assert neutral(text) == text
