"""Calls over TLS: only certificates of those whom this machine trusts count, and they are read once."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import bide
from bide.authoring.language.sending import HttpFailed, send, send_out
from bide.engine.transport import Undelivered
from bide.engine.trust import trust
from tests.transports.test_webhook import REQUEST

PATIENCE = timedelta(minutes=2)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for 127.0.0.1 that nobody else has signed, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    path = tmp_path_factory.mktemp("trust") / "own.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + text)
    return path


@pytest.fixture
async def own_url(certificate: Path) -> AsyncIterator[str]:
    """A server with that certificate; it answers everything with an empty object."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    finally:
        server.close()
        await server.wait_closed()


async def test_a_server_that_nobody_vouches_for_is_not_talked_to(own_url: str) -> None:
    """By the client, by machine files, by webhooks."""
    with pytest.raises(bide.errors.Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        async with bide.Client(own_url, key="bide_ws_x") as client:
            await client.get("run_1")
    for sent in (
        send("GET", own_url, {}, None, PATIENCE, 1000),
        send_out("GET", own_url, {}, None, PATIENCE, 1000, "127.0.0.1"),
    ):
        with pytest.raises(HttpFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await sent
    [told] = await bide.Webhook(own_url, allow_private=True).dispatch([REQUEST])
    assert isinstance(told, Undelivered)
    assert "CERTIFICATE_VERIFY_FAILED" in told.reason


async def test_the_operator_may_name_others_whom_the_program_trusts(
    own_url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As httpx does by itself; what was read before does not count any more."""
    assert isinstance(trust(own_url), ssl.SSLContext)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    found = await send("GET", own_url, {}, None, PATIENCE, 1000)

    assert (found["status"], found["body"]) == (200, {})
    with pytest.raises(HttpFailed, match="CERTIFICATE_VERIFY_FAILED"):  # an address from a file: none of its business
        await send_out("GET", own_url, {}, None, PATIENCE, 1000, "127.0.0.1")


def test_certificates_are_read_once_and_only_for_tls() -> None:
    read = trust("https://a.example")

    assert isinstance(read, ssl.SSLContext)
    assert (read.verify_mode, read.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert trust("https://b.example/path") is read
    assert trust("HTTPS://c.example") is read
    assert trust("http://a.example") is False
