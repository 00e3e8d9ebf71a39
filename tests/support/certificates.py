"""Certificates for tests: an authority and the certificates that it signs.

The code uses X.509 and ECDSA on P-256 without protection against timing attacks: it is for tests only. The standard
library issues no certificates, and private keys in a repository trigger secret scanners.

Source: RFC 5280 (certificates), RFC 5915 (keys), SEC 1 version 2.0, section 4.1.3 (signatures).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
from dataclasses import dataclass
from pathlib import Path

_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_EC_PUBLIC_KEY = bytes.fromhex("06072a8648ce3d0201")
_P256 = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_SHA256 = bytes.fromhex("06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")
_BASIC_CONSTRAINTS = bytes.fromhex("0603551d13")
_ALTERNATIVE_NAME = bytes.fromhex("0603551d11")

_Point = tuple[int, int] | None


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
    """Certificate authority.

    Attributes:
        certificate: Certificate of the authority in PEM.
    """

    def __init__(self, name: str = "authority of a test") -> None:
        self._name = name
        self._scalar = secrets.randbelow(_N - 1) + 1
        self.certificate = _pem("CERTIFICATE", self._signed(name, self._scalar, _extension(_IS_AUTHORITY)))

    def issue(self, name: str, address: str = "127.0.0.1") -> KeyPair:
        """Return a signed certificate for a DNS name and an IP address."""
        scalar = secrets.randbelow(_N - 1) + 1
        names = _tagged(0x82, name.encode()) + _tagged(0x87, ipaddress.ip_address(address).packed)
        alternative = _extension(_sequence(_ALTERNATIVE_NAME, _tagged(4, _sequence(names))))
        return KeyPair(_pem("CERTIFICATE", self._signed(name, scalar, alternative)), _key(scalar))

    def _signed(self, subject: str, scalar: int, extensions: bytes) -> bytes:
        algorithm = _sequence(_ECDSA_SHA256)
        body = _sequence(
            _tagged(0xA0, _integer(2)),
            _integer(secrets.randbits(63) + 1),
            algorithm,
            _name(self._name),
            _sequence(_tagged(0x18, b"20200101000000Z"), _tagged(0x18, b"21200101000000Z")),
            _name(subject),
            _sequence(_sequence(_EC_PUBLIC_KEY, _P256), _bits(_public(scalar))),
            extensions,
        )
        return _sequence(body, algorithm, _bits(_signature(self._scalar, body)))


# -- P-256 ----------------------------------------------------------------------------------------------------------


def _added(left: _Point, right: _Point) -> _Point:
    if left is None or right is None:
        return left or right
    (x1, y1), (x2, y2) = left, right
    if x1 == x2 and (y1 + y2) % _P == 0:
        return None
    slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, _P) if left == right else (y2 - y1) * pow(x2 - x1, -1, _P)
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _multiple(scalar: int) -> tuple[int, int]:
    result: _Point = None
    power: _Point = _G
    while scalar:
        if scalar & 1:
            result = _added(result, power)
        power = _added(power, power)
        scalar >>= 1
    assert result is not None
    return result


def _public(scalar: int) -> bytes:
    x, y = _multiple(scalar)
    return b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")


def _signature(scalar: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    nonce = secrets.randbelow(_N - 1) + 1
    r = _multiple(nonce)[0] % _N
    s = pow(nonce, -1, _N) * (digest + r * scalar) % _N
    return _sequence(_integer(r), _integer(s))


# -- DER and PEM ----------------------------------------------------------------------------------------------------


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _tagged(0x30, b"".join(parts))


def _integer(value: int) -> bytes:
    return _tagged(2, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _tagged(3, b"\x00" + content)


def _name(text: str) -> bytes:
    return _sequence(_tagged(0x31, _sequence(_COMMON_NAME, _tagged(0x0C, text.encode()))))


def _extension(extension: bytes) -> bytes:
    return _tagged(0xA3, _sequence(extension))


_IS_AUTHORITY = _sequence(_BASIC_CONSTRAINTS, _tagged(1, b"\xff"), _tagged(4, _sequence(_tagged(1, b"\xff"))))


def _key(scalar: int) -> str:
    body = _sequence(
        _integer(1), _tagged(4, scalar.to_bytes(32, "big")), _tagged(0xA0, _P256), _tagged(0xA1, _bits(_public(scalar)))
    )
    return _pem("EC PRIVATE KEY", body)


def _pem(label: str, body: bytes) -> str:
    encoded = base64.b64encode(body).decode()
    lines = [encoded[start : start + 64] for start in range(0, len(encoded), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])
