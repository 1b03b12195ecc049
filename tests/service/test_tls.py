"""https by the service itself, with certificates made by openssl."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.faults.fleet import eventually

from tocsin_service.access.certificates import Certificate, CertificateError
from tocsin_service.app import Service, StartError
from tocsin_service.settings import Settings

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")

Make = Callable[[str], tuple[Path, Path]]

TRAINER = """
import sys, tocsin
tocsin.init("run", url=sys.argv[1], token="correct-horse-battery")
tocsin.log({"loss": 0.5}, step=1)
tocsin.finish()
"""


@pytest.fixture
def make_certificate(tmp_path: Path) -> Make:
    """A certificate for this machine, which only who is told of it believes; and its key. Of the given name."""

    def make(name: str) -> tuple[Path, Path]:
        certificate, key = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", f"/CN={name}"]
        command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return certificate, key

    return make


def shown_name(address: str, trusted: Path) -> str:
    """The name in the certificate that the service shows now."""
    parts = urlsplit(address)
    context = ssl.create_default_context(cafile=str(trusted))
    with (
        socket.create_connection((parts.hostname, parts.port), timeout=30) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as secured,
    ):
        certificate: Any = secured.getpeercert()
    return str(dict(entry[0] for entry in certificate["subject"])["commonName"])


def test_a_verifying_client_gets_in(make_api: Any, make_certificate: Make) -> None:
    certificate, key = make_certificate("one")
    api = make_api(tls_cert_file=certificate, tls_key_file=key, tokens=("correct-horse-battery",))
    assert api.address.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=str(certificate))
    with urllib.request.urlopen(f"{api.address}/healthz", context=context, timeout=30) as answer:
        assert answer.status == 200
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{api.address}/healthz", timeout=30)


def test_the_trainers_client_and_the_printed_address(
    start_process: Any, make_certificate: Make, tmp_path: Path
) -> None:
    certificate, key = make_certificate("one")
    (tmp_path / "tokens").write_text("correct-horse-battery\n")
    (tmp_path / "tocsin.toml").write_text(f'tls_cert_file = "{certificate}"\ntls_key_file = "{key}"\n')
    words = ("--config", str(tmp_path / "tocsin.toml"), "--db", str(tmp_path / "t.db"))
    service = start_process("serve", *words, "--token-file", str(tmp_path / "tokens"))
    address = service.api.address
    assert address.startswith("https://")
    environment = {"SSL_CERT_FILE": str(certificate), "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", TRAINER, address], env=environment, check=True, timeout=60)
    request = urllib.request.Request(
        f"{address}/v1/runs/run", headers={"authorization": "Bearer correct-horse-battery"}
    )
    context = ssl.create_default_context(cafile=str(certificate))
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:
        assert b'"vectors":1' in answer.read()


def test_old_versions_and_plain_http_are_refused(make_api: Any, make_certificate: Make) -> None:
    certificate, key = make_certificate("one")
    api = make_api(tls_cert_file=certificate, tls_key_file=key)
    assert Certificate(certificate, key).context.minimum_version == ssl.TLSVersion.TLSv1_2
    parts = urlsplit(api.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not connection.recv(1000).startswith(b"HTTP")
    assert shown_name(api.address, certificate) == "one"


def test_a_new_certificate_is_taken_without_a_restart(
    make_api: Any, make_certificate: Make, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = make_certificate("old")
    new_certificate, new_key = make_certificate("new")
    api = make_api(tls_cert_file=certificate, tls_key_file=key)
    trusted = certificate.with_name("both.crt")
    trusted.write_bytes(certificate.read_bytes() + new_certificate.read_bytes())
    assert shown_name(api.address, trusted) == "old"
    new_certificate.replace(certificate)  # it doesn't fit the key now
    eventually(lambda: "stays as it was" in caplog.text, 30, "a look at the files")
    assert shown_name(api.address, trusted) == "old"
    new_key.replace(key)
    eventually(lambda: shown_name(api.address, trusted) == "new", 30, "the new certificate")


@pytest.mark.parametrize("trouble", ["absent", "no certificate", "another key", "password"])
def test_certificates_that_are_none(tmp_path: Path, make_certificate: Make, trouble: str) -> None:
    certificate, key = make_certificate("one")
    match trouble:
        case "absent":
            certificate.unlink()
        case "no certificate":
            certificate.write_text("secret")
        case "another key":
            _, key = make_certificate("two")
        case "password":
            command = ["openssl", "ec", "-in", str(key), "-aes256", "-passout", "pass:secret", "-out", f"{key}.locked"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            key = Path(f"{key}.locked")
    with pytest.raises(CertificateError, match="can't be used") as caught:
        Certificate(certificate, key)
    assert "secret" not in str(caught.value)
    with pytest.raises(StartError, match="tls_cert_file"):
        Service(Settings(port=0, db=tmp_path / "t.db", tls_cert_file=certificate, tls_key_file=key)).start()
