"""Encrypted connections, proxies, and servers that answer strangely."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tocsin._transport import Address, Transport, Unreachable


@pytest.fixture
def tunnel():
    """A proxy that opens tunnels, all to this machine; gives its address and the list of what it was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self):
            asked.append((self.path, self.headers.get("Proxy-Authorization")))
            with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2]))) as upstream:
                self.send_response(200)
                self.end_headers()
                with suppress(OSError):
                    pump(self.connection, upstream)

        def log_message(self, *_):
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{proxy.server_address[1]}", asked
    proxy.shutdown()
    thread.join()
    proxy.server_close()


def pump(one, other):
    while True:
        for ready in select.select([one, other], [], [])[0]:
            data = ready.recv(65536)
            if not data:
                return
            (other if ready is one else one).sendall(data)


@pytest.fixture
def answers():
    """A server that answers every connection with the given bytes, whatever it is asked, and hangs up."""
    listening = socket.create_server(("127.0.0.1", 0))
    answer = []

    def serve():
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(answer[0])

    thread = threading.Thread(target=serve)
    thread.start()

    def told(data):
        answer[:] = [data]
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield told
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


@pytest.mark.parametrize(
    ("url", "netloc", "shown"),
    [
        ("http://host", "host:80", "http://host:80"),
        ("https://host", "host:443", "https://host:443"),
        (" http://host:8765/ ", "host:8765", "http://host:8765"),
        ("http://[::1]:99/a/b/", "[::1]:99", "http://[::1]:99/a/b"),
        ("http://me:pass@host/x", "host:80", "http://host:80/x"),
    ],
)
def test_addresses(url, netloc, shown):
    address = Address.parse(url)
    assert (address.netloc, str(address)) == (netloc, shown)


def test_a_token_comes_before_credentials_in_the_address():
    assert Address.parse("http://me:p%40ss@host").authorization == "Basic bWU6cEBzcw=="
    assert Address.parse("http://me:pass@host", "t").authorization == "Bearer t"
    assert Address.parse("http://host").authorization == ""


@pytest.mark.parametrize(
    ("host", "here"), [("127.0.0.1", True), ("[::1]", True), ("localhost", True), ("10.0.0.1", False), ("x.y", False)]
)
def test_loopback(host, here):
    assert Address.parse(f"http://{host}:1").loopback is here


def test_encrypted_connections_work_with_a_trusted_certificate(start, connect, certificate, monkeypatch):
    file, context = certificate
    server = start(tls=context)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    run = connect(url=server.url)
    run.log({"x": 1}, 1)
    assert run.finish(30)
    assert server.steps() == [1]


def test_an_untrusted_certificate_is_named_and_nothing_is_sent(start, connect, certificate, said):
    server = start(tls=certificate[1])
    run = connect(url=server.url)
    run.log({"x": 1}, 1)
    said.wait("certificate verify failed")
    assert not run.finish(0)
    assert not server.requests


def test_plain_requests_go_through_the_environments_proxy(server, connect, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://me:pass@127.0.0.1:{server.port}")
    run = connect(url="http://tocsin.invalid/base")
    run.log({"x": 1}, 1)
    assert run.finish(30)
    asked = server.requests[0]
    assert asked.path == "http://tocsin.invalid:80/base/v1/runs/run/steps"
    assert asked.headers["Host"] == "tocsin.invalid:80"
    assert asked.headers["Proxy-Authorization"] == "Basic bWU6cGFzcw=="


def test_encrypted_requests_go_through_a_tunnel(start, connect, certificate, monkeypatch, tunnel):
    file, context = certificate
    server = start(tls=context)
    proxy, asked = tunnel
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("https_proxy", f"http://me:pass@{proxy}")
    run = connect(url=f"https://tocsin.invalid:{server.port}", token="t")  # noqa: S106 no secret of anything
    run.log({"x": 1}, 1)
    assert run.finish(30)
    assert set(asked) == {(f"tocsin.invalid:{server.port}", "Basic bWU6cGFzcw==")}
    assert server.requests[0].headers["Authorization"] == "Bearer t"
    assert "Proxy-Authorization" not in server.requests[0].headers


@pytest.mark.parametrize("no_proxy", ["tocsin.invalid", "*", ".invalid"])
def test_no_proxy_is_obeyed(server, monkeypatch, no_proxy):
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{server.port}")
    monkeypatch.setenv("no_proxy", no_proxy)
    transport = Transport(Address.parse("http://tocsin.invalid"), 1.0)
    with pytest.raises(Unreachable):
        transport.request("GET", "/", None, {})
    assert not server.requests


def test_a_server_on_this_machine_is_never_asked_through_a_proxy(server, connect, monkeypatch, dead):
    monkeypatch.setenv("http_proxy", dead)
    run = connect(url=server.url)
    run.log({"x": 1}, 1)
    assert run.finish(30)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\xff" * 100,
    ],
)
def test_what_is_no_http_is_unreachable(answers, data):
    transport = Transport(Address.parse(answers(data)), 30.0)
    with pytest.raises(Unreachable):
        transport.request("POST", "/", b"[]", {})
    transport.close()


def test_an_answer_before_the_body_was_read_is_heard(answers):
    url = answers(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    transport = Transport(Address.parse(url), 30.0)
    with suppress(Unreachable):
        # The server's hanging up can overtake its answer; it must never look like another answer.
        assert transport.request("POST", "/", b"x" * 20_000_000, {}).status == 413
    transport.close()


def test_what_a_server_says_is_told_on_one_short_line(server):
    server.decide = lambda _: server.Reply(418, {}, b"a\n\nb\t\xff" + b"x" * 10_000)
    transport = Transport(Address.parse(server.url), 30.0)
    told = transport.request("GET", "/", None, {}).told()
    transport.close()
    assert told.startswith("HTTP 418 a b �x")
    assert len(told) < 520


def test_a_body_that_a_server_hangs_up_on_is_sent_in_smaller_parts(server, connect):
    server.decide = lambda asked: server.Reply(hang_up=len(asked.body) > 100_000)
    server.script.append(server.Reply(503, {"Retry-After": "0"}))
    run = connect(url=server.url)
    for step in range(400):
        run.log({f"metric/with/a/long/name/{i}": 1.0 for i in range(10)}, step)
    assert run.finish(90)
    assert server.steps() == list(range(400))
