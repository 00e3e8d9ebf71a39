"""Certificates for servers on loopback: an authority and the certificates that it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

KeyType = Literal["ecdsa", "rsa"]
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Certificate and its private key in PEM."""

    certificate: str
    key: str

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write both to files; return the paths of the certificate and of the key."""
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_text(self.certificate)
        key.touch(mode=0o600)
        key.write_text(self.key)
        return certificate, key


class Authority:
    """Certificate authority. Like many in use, it lacks extensions that OpenSSL's strict mode requires.

    Attributes:
        certificate: Certificate of the authority in PEM.
    """

    def __init__(self, name: str = "authority of a test") -> None:
        self._name = name
        self._key = _new_key("ecdsa")
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._signed(name, self._key, constraints, critical=True)

    def issue(self, name: str, address: str = "127.0.0.1", key_type: KeyType = "ecdsa") -> KeyPair:
        """Return a signed certificate for a DNS name and an IP address."""
        key = _new_key(key_type)
        names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address(address))])
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return KeyPair(self._signed(name, key, names, critical=False), pem.decode())

    def _signed(self, subject: str, key: _Key, extension: x509.ExtensionType, *, critical: bool) -> str:
        built = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
            .not_valid_after(dt.datetime(2120, 1, 1, tzinfo=dt.UTC))
            .add_extension(extension, critical=critical)
        )
        return built.sign(self._key, SHA256()).public_bytes(Encoding.PEM).decode()


def _new_key(key_type: KeyType) -> _Key:
    if key_type == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
