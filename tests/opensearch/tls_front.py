"""TLS and basic authentication in front of a node, as a proxy or the security plug-in would have them, and certificates for it."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.opensearch.opensearch_lab import NODES


class Front:
    """Listens on a port of its own until closed; `heard` counts the bytes that came through TLS."""

    def __init__(self, certificate: Path, user: str, password: str, ca: Path | None = None) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate)
        if ca is not None:
            self._context.load_verify_locations(ca)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._wanted = b"basic " + base64.b64encode(f"{user}:{password}".encode())
        self.heard = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError), self._context.wrap_socket(near, server_side=True) as tls:
            data = tls.recv(65_536)
            self.heard += len(data)
            if self._wanted.lower() not in data.lower():
                body = b'{"error":{"type":"security_exception","root_cause":[]},"status":401}'
                head = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
                tls.sendall(head % len(body) + body)
                while tls.recv(65_536):
                    pass
                return
            host, port = NODES[0].removeprefix("http://").split(":")
            with socket.create_connection((host, int(port))) as far:
                far.sendall(data)
                threading.Thread(target=self._back, args=(far, tls), daemon=True).start()
                while data := tls.recv(65_536):
                    far.sendall(data)

    def _back(self, far: socket.socket, tls: ssl.SSLSocket) -> None:
        with suppress(OSError):
            while data := far.recv(65_536):
                tls.sendall(data)

    def close(self) -> None:
        self._listener.close()


def make_authority(folder: Path, name: str) -> tuple[Path, Any, Any]:
    """A file with its certificate, and what signs others."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certify(name, key.public_key(), name, key, authority=True)
    place = folder / f"{name}.pem"
    place.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return place, certificate, key


def _certify(name: str, public: Any, issuer: str, signer: Any, *, authority: bool) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    )
    return builder.sign(signer, hashes.SHA256())


def issue(folder: Path, name: str, authority: tuple[Path, Any, Any]) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certify(name, key.public_key(), authority[0].stem, authority[2], authority=False)
    place = folder / f"{name}.pem"
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    place.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + secret)
    return place
