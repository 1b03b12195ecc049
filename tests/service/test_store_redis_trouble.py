"""The Redis store when Redis is away, hangs, is full or refuses; and who may do what, over which connection."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import redis
from tests.conftest import RedisServer
from tests.service import test_store_contract as contract
from tests.service import test_store_outbox as outbox
from tests.service import test_store_retention as retention
from tests.service import test_store_wishes as wishes
from tests.service.stores import ACKNOWLEDGEMENT, ACT, NOW, add, change, events, positions, record, summary

from tocsin_detectors.entries import StepVector
from tocsin_service import wiring
from tocsin_service.app import Service
from tocsin_service.settings import Settings, load
from tocsin_service.store import Appended, Record, StoreRefused, StoreUnavailable
from tocsin_service.store.redis import Address, RedisStore, connection, keys
from tocsin_service.store.redis.partitions import partition_of

PASSWORD = "very-secret"  # noqa: S105 - a test's
DOCS = Path(__file__).parents[2] / "docs" / "redis.md"

MakeRedis: TypeAlias = Callable[..., RedisServer]
MakeStore: TypeAlias = Callable[..., RedisStore]


@pytest.fixture
def make_store() -> Iterator[MakeStore]:
    with ExitStack() as stack:

        def make(url: str, **address: Any) -> RedisStore:
            store = RedisStore(Address(url, **address))
            stack.callback(store.close)
            return store

        yield make


def refused(store: RedisStore) -> list[str]:
    """What each kind of call says while Redis is away."""
    calls: list[Callable[[], object]] = [
        lambda: add(store, record(5)),
        lambda: store.read("r", 0, 1),
        lambda: store.commit("r", change(0, 0)),
        lambda: store.claim("slack", NOW, 60),
        store.check,
        store.news,
        store.usage,
        store.acknowledgements,
        lambda: store.acknowledge(ACKNOWLEDGEMENT),
        lambda: store.incident("r", "i1"),
        lambda: store.record(ACT),
        lambda: store.acts(1),
        lambda: store.runs(1),
    ]
    said = []
    for call in calls:
        with pytest.raises(StoreUnavailable) as caught:
            call()
        said.append(str(caught.value))
    return said


class TestAway:
    def test_calls_fail_until_it_is_back(self, make_redis: MakeRedis, make_store: MakeStore) -> None:
        server = make_redis("--appendonly", "yes")
        store = make_store(server.url)
        add(store, record(1))
        server.kill()
        assert all("Redis" in text for text in refused(store))
        server.start()
        store.check()
        assert add(store, record(1), record(2)) == Appended(1, 1)
        assert store.news() == ["r"]

    def test_it_may_come_after_the_store(self, make_redis: MakeRedis, make_store: MakeStore) -> None:
        server = make_redis()
        server.kill()
        store = make_store(server.url)
        refused(store)
        server.start()
        assert add(store, record(1)) == Appended(1, 0)

    def test_what_was_acknowledged_survives_a_crash(self, make_redis: MakeRedis, make_store: MakeStore) -> None:
        server = make_redis("--appendonly", "yes", "--appendfsync", "always")
        store = make_store(server.url)
        enough, acknowledged = threading.Event(), []

        def send() -> None:
            for step in range(100_000):
                try:
                    add(store, record(step))
                except StoreUnavailable:
                    return
                acknowledged.append(step)
                if step == 100:
                    enough.set()

        sender = threading.Thread(target=send)
        sender.start()
        assert enough.wait(60)
        server.kill()
        sender.join()
        server.start()
        stored = [one.entry.step for one in store.read("r", 0, 100_000) if isinstance(one.entry, StepVector)]
        assert stored[: len(acknowledged)] == acknowledged
        assert len(stored) <= len(acknowledged) + 1  # one may have been stored and not acknowledged

    def test_without_persistence_everything_begins_anew(self, make_redis: MakeRedis, make_store: MakeStore) -> None:
        server = make_redis()
        store = make_store(server.url)
        add(store, record(1))
        at = positions(store)[-1]
        assert store.commit("r", change(0, at))
        server.kill()
        server.start()
        assert not store.commit("r", change(at, at))
        assert add(store, record(1)) == Appended(1, 0)
        assert store.commit("r", change(0, positions(store)[-1], events()))

    def test_it_hangs(self, make_redis: MakeRedis, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.2)
        server = make_redis()
        store = make_store(server.url)
        add(store, record(1))
        assert server._process is not None
        os.kill(server._process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable, match="Timeout"):
                add(store, record(2))
        finally:
            os.kill(server._process.pid, signal.SIGCONT)
        add(store, record(2))
        assert summary(store).vectors == 2  # whether or not the first attempt took place


class TestRefusing:
    def test_a_full_redis(self, make_redis: MakeRedis, make_store: MakeStore) -> None:
        server = make_redis("--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
        store = make_store(server.url)
        wide = {f"metric{number}": 0.1 for number in range(300)}
        futures = [store.append(f"r{step % 3}", [record(step, **wide)], NOW) for step in range(900)]
        problems = [future.exception(60) for future in futures]
        assert {type(problem) for problem in problems} == {type(None), StoreUnavailable}
        assert "maxmemory" in str(problems[-1])
        server.cli("CONFIG", "SET", "maxmemory", "1mb")  # much less than it has by now
        usage = store.usage()
        assert usage.free == 0 < usage.used
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            store.record(ACT)
        stored = sum(len(store.read(f"r{number}", 0, 1000)) for number in range(3))
        counted = sum(summary(store, f"r{number}").vectors for number in range(3))
        assert stored == counted == problems.count(None)
        server.cli("CONFIG", "SET", "maxmemory", str(2**30))
        usage = store.usage()
        assert usage.free == 2**30 - usage.used > 0
        server.cli("CONFIG", "SET", "maxmemory", "0")
        assert store.usage().free is None
        assert add(store, record(5000)) == Appended(1, 0)

    def test_a_replica(self, make_redis: MakeRedis, make_store: MakeStore) -> None:
        server = make_redis("--replicaof", "127.0.0.1 1")
        store = make_store(server.url)
        for work in (lambda: add(store, record(1)), store.check):
            with pytest.raises(StoreUnavailable, match=r"(?i)read.?only"):
                work()
        assert store.runs(5) == []

    @pytest.mark.parametrize("url", ["http://a/b", "redis://host:port", "nonsense", "redis://:very-secret@[/0"])
    def test_no_address(self, url: str) -> None:
        with pytest.raises(StoreRefused, match="redis://HOST") as caught:
            RedisStore(Address(url))
        assert "secret" not in str(caught.value)


class TestPasswords:
    def test_the_right_one(self, make_redis: MakeRedis, make_store: MakeStore, tmp_path: Path) -> None:
        server = make_redis("--requirepass", PASSWORD)
        (tmp_path / "password").write_text(f"{PASSWORD}\n")
        settings = load({"store": server.url, "redis_password_file": tmp_path / "password"}, environ={})
        assert settings.redis_password == PASSWORD
        add(make_store(server.url, password=settings.redis_password), record(1))
        add(make_store(server.url.replace("//", f"//:{PASSWORD}@")), record(2))
        add(make_store(server.socket_url, password=PASSWORD), record(3))

    @pytest.mark.parametrize("wrong", [{}, {"password": "wrong-secret"}, {"user": "nobody", "password": PASSWORD}])
    def test_a_wrong_one(self, make_redis: MakeRedis, make_store: MakeStore, wrong: dict[str, str]) -> None:
        server = make_redis("--requirepass", PASSWORD)
        assert not any("secret" in text for text in refused(make_store(server.url, **wrong)))

    def test_it_is_not_shown(self) -> None:
        url = f"rediss://me:{PASSWORD}@host:6379/0?password={PASSWORD}"
        address = Address(url, password=PASSWORD)
        assert str(address) == "rediss://host:6379/0"
        shown = f"{address!r} {Settings(store=url, redis_password=PASSWORD)!r}"
        assert PASSWORD not in shown


def _shell(commands: str, server: RedisServer) -> str:
    """What commands of the docs print."""
    commands = commands.replace("redis-cli ", f"redis-cli -s {server.folder}/redis.sock ")
    done = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True, timeout=30, check=True)
    return done.stdout


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for this machine and its key."""
    if not shutil.which("openssl"):
        pytest.skip("needs the openssl program to make a certificate")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {cert}"
    command = [*made.split(), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_an_encrypted_connection(make_redis: MakeRedis, make_store: MakeStore, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    files = ["--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file", str(cert)]
    server = make_redis("--tls-auth-clients", "no", *files)
    server.cli("CONFIG", "SET", "port", "0")  # the one port now speaks TLS
    server.cli("CONFIG", "SET", "tls-port", str(server.port))
    url = server.url.replace("redis://", "rediss://")
    assert add(make_store(url, ca_file=cert), record(1)) == Appended(1, 0)
    with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
        add(make_store(url), record(1))  # nobody whom the system trusts has signed it
    refused(make_store(server.url))


class TestRights:
    """The users that docs/redis.md tells to make."""

    @pytest.fixture
    def server(self, redis_server: RedisServer) -> Iterator[RedisServer]:
        (users,) = re.findall(r"```sh\n(redis-cli ACL .*?)```", DOCS.read_text(), re.DOTALL)
        assert _shell(users, redis_server) == "OK\nOK\n"
        redis_server.cli("ACL", "LOG", "RESET")
        yield redis_server
        redis_server.cli("ACL", "DELUSER", "tocsin", "trainer")

    def test_the_service_can_do_its_work(self, server: RedisServer, make_store: MakeStore) -> None:
        for suite, name in [
            (contract.TestLog(), "test_a_known_key_is_not_stored_again"),
            (contract.TestLog(), "test_seek_in_a_long_log"),
            (contract.TestLog(), "test_recent_times"),
            (contract.TestCommit(), "test_filters"),
            (contract.TestCommit(), "test_rewriting_forgets_what_was_found_before"),
            (contract.TestCommit(), "test_news_until_committed"),
            (contract.TestCommit(), "test_one_incident"),
            (contract.TestUsage(), "test_it_grows"),
            (outbox.TestOutbox(), "test_again_later"),
            (outbox.TestDueAgain(), "test_news_do_not_wait_for_a_reminder"),
            (wishes.TestSilences(), "test_expired"),
            (wishes.TestAcknowledgements(), "test_kept_by_incident"),
            (wishes.TestAcknowledgements(), "test_it_does_not_wait_for_a_reminder"),
            (wishes.TestAudit(), "test_latest_first"),
            (retention.TestRetention(), "test_a_silent_run_goes_with_everything"),
            (retention.TestRetention(), "test_by_count"),
            (retention.TestRetention(), "test_old_silences"),
        ]:
            server.cli("FLUSHALL")
            server.cli("SCRIPT", "FLUSH")
            store = make_store(server.socket_url, user="tocsin", password="PASSWORD-OF-THE-SERVICE")  # noqa: S106
            getattr(suite, name)(store)

    def test_the_service_takes_what_trainers_send(self, server: RedisServer, make_store: MakeStore) -> None:
        store = make_store(server.socket_url, user="tocsin", password="PASSWORD-OF-THE-SERVICE")  # noqa: S106
        server.cli("XADD", "tocsin:{r}:log", "*", "vector", "garbage")
        server.cli("XADD", "tocsin:{r}:log", "*", "vector", '{"step": 1, "metrics": {"a": 1}, "sequence": "1"}')
        assert store.news() == ["r"]
        assert len(store.read("r", 0, 9)) == store.dead_letters() == 1

    def test_a_whole_service_with_these_rights(self, server: RedisServer, make_store: MakeStore) -> None:
        settings = Settings(
            port=0,
            store=server.url,
            redis_user="tocsin",
            redis_password="PASSWORD-OF-THE-SERVICE",  # noqa: S106
        )
        trainer = redis.Redis.from_url(server.url, username="trainer", password="PASSWORD-OF-THE-TRAINERS")  # noqa: S106
        store = make_store(server.socket_url)
        with Service(settings, wire=wiring.work), Service(settings) as web, trainer:
            for step in range(20):
                metrics = '{"actor/pg_loss": NaN}' if step > 10 else '{"actor/pg_loss": 0.5}'
                trainer.xadd("tocsin:{r}:log", {"vector": f'{{"step": {step}, "metrics": {metrics}}}'})
            trainer.xadd(keys.nudges("r"), {"run": "r"}, maxlen=100_000)
            assert web.wait_idle(30)
            assert [alert.rule for alert in store.alerts("r", None, None, 9)] == ["non_finite"]
        with redis.Redis.from_url(server.url, decode_responses=True) as administrator:
            # A newer Redis would hear the library's name, which it can do without.
            assert {one["object"] for one in administrator.acl_log()} <= {"client|setinfo"}

    def test_a_trainer_can_send_and_nothing_else(self, server: RedisServer, make_store: MakeStore) -> None:
        client = redis.Redis.from_url(server.url, username="trainer", password="PASSWORD-OF-THE-TRAINERS")  # noqa: S106
        with client:
            client.xadd("tocsin:{r}:log", {"vector": '{"step": 1, "metrics": {"loss": 0.5}}'})
            client.xadd("tocsin:nudges:3", {"run": "r"}, maxlen=1000)
            for forbidden in (
                lambda: client.xadd("tocsin:{r}:run", {"a": "b"}),
                lambda: client.xadd("tocsin:dead", {"a": "b"}),
                lambda: client.xrange("tocsin:{r}:log"),
                lambda: client.delete("tocsin:{r}:log"),
                lambda: client.hset("tocsin:{r}:run", "a", "b"),
                lambda: client.eval("return 1", 0),
                client.keys,
                client.flushall,
                lambda: client.config_get("*"),
            ):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    forbidden()
        store = make_store(server.socket_url)
        assert len(store.read("r", 0, 9)) == 1


def test_the_example_of_the_docs(redis_server: RedisServer, make_store: MakeStore) -> None:
    (example,) = re.findall(r"```sh\n(redis-cli XADD .*?)```", DOCS.read_text(), re.DOTALL)
    assert len(re.findall(r"^\d+-\d+$", _shell(example, redis_server), re.MULTILINE)) == 2
    store = make_store(redis_server.socket_url)
    assert store.news() == ["my-run"]
    (stored,) = store.read("my-run", 0, 9)
    assert isinstance(stored.entry, StepVector)
    assert stored.entry.step == 17
    (nudge,) = redis_server.cli("XLEN", f"tocsin:nudges:{partition_of('my-run')}").split()
    assert nudge == "1"


def test_a_record_without_a_key_is_stored_each_time(redis_server: RedisServer, make_store: MakeStore) -> None:
    store = make_store(redis_server.socket_url)
    entry = Record(StepVector(1, {}, NOW))
    assert add(store, entry, entry) == Appended(2, 0)
