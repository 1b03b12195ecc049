"""Vectors into a real Redis: everything, once, in order, whatever Redis does meanwhile."""

from __future__ import annotations

import json
import socket
import threading
import zlib
from contextlib import suppress

import pytest

from tocsin._guard import Mistake
from tocsin._redis import RedisAddress, RedisConnection
from tocsin._resp import ErrorReply


@pytest.fixture
def deaf(redis_server):
    """A way to Redis that loses the first answer to a batch; gives its address and the number of connections."""
    listening = socket.create_server(("127.0.0.1", 0))
    connections = []

    def serve():
        with suppress(OSError):
            while True:
                here, _ = listening.accept()
                connections.append(here)
                with here, socket.create_connection(("127.0.0.1", redis_server.port)) as there, suppress(OSError):
                    while data := here.recv(1 << 20):
                        there.sendall(data)
                        answer = there.recv(1 << 20)
                        if len(connections) == 1:
                            break
                        here.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"redis://127.0.0.1:{listening.getsockname()[1]}", connections
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


@pytest.mark.parametrize(
    ("url", "token", "address", "shown"),
    [
        ("redis://host", None, RedisAddress("redis", "host", 6379), "redis://host:6379/0"),
        (" rediss://[::1]:99/3 ", None, RedisAddress("rediss", "::1", 99, 3), "rediss://[::1]:99/3"),
        ("redis://u:p%40s@h", None, RedisAddress("redis", "h", 6379, 0, "u", "p@s"), "redis://h:6379/0"),
        ("redis://:p@h/1", " t\n", RedisAddress("redis", "h", 6379, 1, "", "t"), "redis://h:6379/1"),
        ("redis://h?db=2", "t", RedisAddress("redis", "h", 6379, 2, "", "t"), "redis://h:6379/2"),
        ("unix:///run/r%20s?db=4", None, RedisAddress("unix", "/run/r s", 0, 4), "unix:///run/r s?db=4"),
        ("unix://u:p@/run/r", None, RedisAddress("unix", "/run/r", 0, 0, "u", "p"), "unix:///run/r?db=0"),
    ],
)
def test_addresses(url, token, address, shown):
    assert RedisAddress.parse(url, token) == address
    assert str(address) == shown


@pytest.mark.parametrize("url", ["redis://", "unix://", "redis://h/x", "redis://h/-1", "redis://h?db=a", "http://h"])
def test_what_names_no_redis(url):
    with pytest.raises(Mistake, match="address of a Redis"):
        RedisAddress.parse(url)


def test_vectors_config_and_end_lie_in_the_runs_stream_as_the_api_takes_them(redis_server, connect):
    run = connect("Lauf 1/ü", url=redis_server.url, config={"algorithm": "grpo"}, attempt=2)
    for step in range(300):
        run.log({"reward": step / 2, "kl": float("nan")}, step, time=1000.0 + step)
    assert run.finish(30)
    first, *middle, last = redis_server.entries("Lauf 1_ü")
    assert first == {b"config": b'{"algorithm": "grpo"}'}
    assert last == {b"config": b'{"finished": true}'}
    vectors = redis_server.vectors("Lauf 1_ü")
    assert [vector["step"] for vector in vectors] == list(range(300))
    assert len(middle) == 300
    assert middle[7][b"vector"].startswith(b'{"step":7,"metrics":{"reward":3.5,"kl":NaN},"time":1007.0,"sequence":"')
    assert vectors[7]["attempt"] == 2
    assert run.url == f"redis://127.0.0.1:{redis_server.port}/0"


def test_every_batch_is_followed_by_a_nudge(redis_server, connect):
    run = connect("r", url=redis_server.url)
    run.log({"x": 1}, 1)
    assert run.finish(30)
    with redis_server.client() as client:
        nudges = client.xrange(f"tocsin:nudges:{zlib.crc32(b'r') % 16}")
        [(log, _), *_] = client.xrange("tocsin:{r}:log")
    assert {tuple(fields.items()) for _, fields in nudges} == {((b"run", b"r"),)}
    assert nudges[0][0] >= log


def test_a_killed_redis_loses_nothing_once_it_is_back(redis_server, connect, caplog, said):
    run = connect(url=redis_server.url)
    for step in range(2000):
        run.log({"x": step}, step)
        if step == 500:
            redis_server.kill()
    said.wait("unreachable")
    redis_server.start()
    for step in range(2000, 2100):
        run.log({"x": step}, step)
    assert run.finish(60)
    assert redis_server.steps() == list(range(2100))
    assert sum("unreachable" in message for message in caplog.messages) == 1


def test_a_batch_whose_answer_was_lost_is_repeated_and_known_by_its_sequence(redis_server, connect, deaf):
    url, connections = deaf
    run = connect(url=url)
    for step in range(20):
        run.log({"x": 1}, step)
    assert run.finish(30)
    assert redis_server.steps() == list(range(20))
    assert len(connections) >= 2
    assert sum(b"vector" in entry for entry in redis_server.entries()) > 20


def test_an_idle_connection_that_was_closed_is_no_failure(redis_server, connect, caplog):
    run = connect(url=redis_server.url)
    for step in range(3):
        run.log({"x": 1}, step)
        while run.stats()["delivered"] <= step:
            threading.Event().wait(0.001)
        with redis_server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
    assert run.finish(30)
    assert redis_server.steps() == [0, 1, 2]
    assert not caplog.messages


@pytest.mark.parametrize(
    ("broken", "mended", "told"),
    [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "NOREPLICAS"),
    ],
)
def test_trouble_that_may_pass_is_waited_out(redis_server, connect, caplog, said, broken, mended, told):
    with redis_server.client() as client:
        client.execute_command(*broken.split())
        run = connect(url=redis_server.url)
        for step in range(20):
            run.log({"x": 1}, step)
        said.wait(told)
        client.execute_command(*mended.split())
    assert run.finish(30)
    assert redis_server.steps() == list(range(20))
    assert len(caplog.messages) == 1


def test_a_key_that_is_no_stream_is_named(redis_server, connect, caplog):
    with redis_server.client() as client:
        client.set("tocsin:{run}:log", 1)
    run = connect(url=redis_server.url)
    assert not delivered(run)
    assert run.stats()["dropped"] == {"not_found": 1}
    assert any("WRONGTYPE" in message for message in caplog.messages)


def test_a_refused_password_is_said_once_and_the_right_one_works(start_redis, connect, caplog, tmp_path, monkeypatch):
    server = start_redis("--requirepass", "s3cret")
    for token in (None, "wrong"):
        run = connect(f"run-{token}", url=server.url, token=token)
        run.log({"x": 1}, 1)
        assert not run.finish(30)
        assert run.stats()["dropped"] == {"unauthorised": 1}
    assert sum("NOAUTH" in message for message in caplog.messages) == 1
    assert sum("WRONGPASS" in message for message in caplog.messages) == 1
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    monkeypatch.setenv("TOCSIN_TOKEN_FILE", str(file))
    assert delivered(connect(url=server.url))
    monkeypatch.delenv("TOCSIN_TOKEN_FILE")
    assert delivered(connect(url=server.url, token="s3cret"))  # noqa: S106 a test's
    assert delivered(connect(url=server.url, token_file=file))
    assert delivered(connect(url=server.url.replace("//", "//:s3cret@")))
    assert not any("s3cret" in message for message in caplog.messages)


def delivered(run):
    run.log({"x": 1}, 1)
    return run.finish(30)


def test_a_user_needs_few_rights(redis_server, connect):
    rights = ["+auth", "+select", "+multi", "+exec", "+xadd"]
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "trainer", "on", ">pass", "~tocsin:*", *rights)
    assert delivered(connect(url=redis_server.url.replace("//", "//trainer:pass@") + "/1"))
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "trainer", "-xadd")
    run = connect(url=redis_server.url.replace("//", "//trainer:pass@"))
    assert not delivered(run)
    assert run.stats()["dropped"] == {"unauthorised": 1}


def test_nothing_of_a_batch_is_stored_if_a_part_of_it_is_refused(redis_server, connect):
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "trainer", "on", ">pass", "~tocsin:{run}:log", "+@all")
    run = connect(url=redis_server.url.replace("//", "//trainer:pass@"))
    assert not delivered(run)  # the nudge isn't allowed
    assert not redis_server.entries()


def test_a_database_and_a_socket_of_the_file_system(start_redis, connect, tmp_path):
    path = tmp_path / "redis.sock"
    server = start_redis("--unixsocket", str(path))
    assert delivered(connect(url=f"unix://{path}?db=3"))
    with server.client(db=3) as client:
        assert client.xlen("tocsin:{run}:log") == 2
    run = connect(url=server.url + "/99")
    assert not delivered(run)
    assert run.stats()["dropped"] == {"not_found": 1}


def test_encrypted_connections_work_with_a_trusted_certificate(
    start_redis, connect, certificate, monkeypatch, said, tmp_path
):
    file, _ = certificate
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tls = f"--tls-port {port} --tls-cert-file {file} --tls-key-file {tmp_path / 'key.pem'} --tls-auth-clients no"
    server = start_redis(*tls.split())
    run = connect(url=f"rediss://localhost:{port}")
    run.log({"x": 1}, 1)
    said.wait("certificate verify failed")
    assert not server.entries()
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert run.finish(30)
    assert server.steps() == [1]


def test_what_is_no_redis_is_named(server, connect, said):
    run = connect(url=f"redis://127.0.0.1:{server.port}")
    run.log({"x": 1}, 1)
    said.wait("no Redis answers here")
    assert not server.posts()


def test_alerts_are_asked_of_a_service_only(redis_server, connect, caplog):
    run = connect(url=redis_server.url)
    assert run.alerts() == []
    assert run.alerts() == []
    assert len(caplog.messages) == 1


def test_replies_of_every_kind_are_those_that_redis_py_reads(redis_server):
    script = "return {1, 'a', {'b', {}, 'c\\r\\n', redis.status_reply('fine')}, redis.error_reply('MY fault')}"
    connection = RedisConnection(RedisAddress.parse(redis_server.url), 30.0)
    commands = [
        (b"SET", b"key", b"\x00\r\n\xff"),
        (b"GET", b"key"),
        (b"GET", b"none"),
        (b"XADD", b"s", b"1-1", b"vector", b"{}"),
        (b"XRANGE", b"s", b"-", b"+"),
        (b"EVAL", script.encode(), b"0"),
        (b"GET", b"s"),
        (b"STRLEN", b"key"),
        (b"SET", b"large", b"x" * 3_000_000),
        (b"GET", b"large"),
    ]
    replies = connection.run(commands)
    connection.close()
    assert replies[:5] == [b"OK", b"\x00\r\n\xff", None, b"1-1", [[b"1-1", [b"vector", b"{}"]]]]
    assert replies[5] == [1, b"a", [b"b", [], b"c\r\n", b"fine"], ErrorReply("MY fault")]
    assert replies[6].text.startswith("WRONGTYPE")
    assert replies[7:9] == [4, b"OK"]
    assert replies[9] == b"x" * 3_000_000
    with redis_server.client() as client:
        assert client.get("large") == replies[9]
        assert client.xrange("s") == [(b"1-1", {b"vector": b"{}"})]


def test_a_config_that_json_cannot_say_is_sent_as_text(redis_server, connect):
    run = connect(url=redis_server.url, config={"algorithm": RedisAddress})
    assert delivered(run)
    assert "RedisAddress" in json.loads(redis_server.entries()[0][b"config"])["algorithm"]
