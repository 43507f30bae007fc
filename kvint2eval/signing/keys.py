"""Keys and signatures, by securesystemslib (the extra `sign`): Ed25519 and ECDSA P-256.

A private key is an unencrypted PKCS #8 PEM file that only its owner can read. The key's id is the SHA-256 of its
public half (SubjectPublicKeyInfo, DER), the same for everyone who has that half.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from kvint2eval.errors import InputError, SigningError
from kvint2eval.files.digest import open_regular, sha256_hex
from kvint2eval.signing.envelope import PAYLOAD_TYPE, Envelope, Signature, parse_envelope

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

__all__ = [
    "ALGORITHMS",
    "PrivateKey",
    "PublicKey",
    "generate_key",
    "load_public_key",
    "read_private_key",
    "sign_statement",
    "write_key_pair",
]

ALGORITHMS = ("ed25519", "ecdsa-p256")

_MAX_KEY_BYTES = 1 << 16
_NEEDS_EXTRA = "signatures need the extra sign: pip install 'kvint2eval[sign]'"


def _signer() -> ModuleType:
    try:
        import cryptography  # noqa: F401, PLC0415  # securesystemslib imports without it and fails later
        import securesystemslib.signer as module  # noqa: PLC0415
    except ImportError as error:
        raise SigningError(_NEEDS_EXTRA) from error
    return module


def _serialization() -> ModuleType:
    _signer()
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    return serialization


class PublicKey:
    """A key that verifies.

    Parameters
    ----------
    key
        What `cryptography` loaded: an Ed25519 or a P-256 key.

    Raises
    ------
    SigningError
        The key is of another kind, or the extra is not installed.

    Attributes
    ----------
    keyid : str
        SHA-256 of its SubjectPublicKeyInfo.
    pem : bytes
        Its PEM text.
    """

    def __init__(self, key: Any) -> None:
        _require_algorithm(key)
        serialization = _serialization()
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        self.keyid = sha256_hex(key.public_bytes(serialization.Encoding.DER, form))
        self.pem: bytes = key.public_bytes(serialization.Encoding.PEM, form)
        self.library_key = _signer().SSlibKey.from_crypto(key, keyid=self.keyid)

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether a signature is this key's over these bytes."""
        from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError  # noqa: PLC0415

        try:
            self.library_key.verify_signature(_signer().Signature(self.keyid, signature.hex()), data)
        except (UnverifiedSignatureError, VerificationError):
            return False
        return True


class PrivateKey:
    """A key that signs.

    Parameters
    ----------
    key
        What `cryptography` loaded or generated.

    Attributes
    ----------
    public : PublicKey
        Its public half.
    """

    def __init__(self, key: Any) -> None:
        self.public = PublicKey(key.public_key())
        self._key = key
        self._signer = _signer().CryptoSigner(key, self.public.library_key)

    @property
    def pem(self) -> bytes:
        """Its PEM text, PKCS #8, not encrypted."""
        serialization = _serialization()
        text: bytes = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return text

    def sign(self, data: bytes) -> Signature:
        """Signature over bytes."""
        return Signature(self.public.keyid, bytes.fromhex(self._signer.sign(data).signature))


def _require_algorithm(key: Any) -> None:
    _signer()
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: PLC0415

    is_p256 = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
    if not is_p256 and not isinstance(key, ed25519.Ed25519PublicKey):
        raise SigningError(f"found a key of type {type(key).__name__}, allowed: Ed25519 or ECDSA P-256")


def generate_key(algorithm: str) -> PrivateKey:
    """A new key.

    Parameters
    ----------
    algorithm
        One of `ALGORITHMS`.

    Raises
    ------
    SigningError
        The algorithm is another one, or the extra is not installed.
    """
    if algorithm not in ALGORITHMS:
        raise SigningError(f"found algorithm {algorithm!r}, allowed: {', '.join(ALGORITHMS)}")
    _signer()
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: PLC0415

    if algorithm == "ed25519":
        return PrivateKey(ed25519.Ed25519PrivateKey.generate())
    return PrivateKey(ec.generate_private_key(ec.SECP256R1()))


def load_public_key(pem: bytes) -> PublicKey:
    """Public key of its PEM text.

    Raises
    ------
    SigningError
        The text holds no public key of an allowed kind, or the extra is not installed.
    """
    serialization = _serialization()
    try:
        key = serialization.load_pem_public_key(pem)
    except Exception as error:  # cryptography raises several kinds, some of them its own
        raise SigningError("found no PEM public key, allowed: -----BEGIN PUBLIC KEY-----") from error
    return PublicKey(key)


def read_private_key(path: str | os.PathLike[str]) -> PrivateKey:
    """Private key of a file.

    Raises
    ------
    SigningError
        The file cannot be read, can be read by others than its owner, or holds no key of an allowed kind.
    """
    try:
        descriptor = open_regular(path)
    except InputError as error:
        raise SigningError(f"key {error}") from error
    with os.fdopen(descriptor, "rb") as stream:
        mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
        if mode & 0o077:
            raise SigningError(
                f"key {path}: found permissions {mode:04o}, allowed: 0600, only the owner may read a private key"
            )
        data = stream.read(_MAX_KEY_BYTES)
    serialization = _serialization()
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except Exception as error:  # cryptography raises several kinds, some of them its own
        raise SigningError(f"key {path}: found no unencrypted PEM private key") from error
    try:
        return PrivateKey(key)
    except SigningError as error:
        raise SigningError(f"key {path}: {error}") from error


def write_key_pair(key: PrivateKey, path: Path) -> Path:
    """Write a private key, readable by its owner alone, and its public half beside it with the suffix `.pub`.

    Parameters
    ----------
    key
        The key.
    path
        Where the private key goes.

    Returns
    -------
    Path
        Where the public half went.

    Raises
    ------
    SigningError
        One of the two files is there already or cannot be written: a key is never overwritten.
    """
    public = path.with_name(path.name + ".pub")
    for target, text, mode in ((path, key.pem, 0o600), (public, key.public.pem, 0o644)):
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        except FileExistsError as error:
            raise SigningError(f"key {target}: found a file, allowed: a new name") from error
        except OSError as error:
            raise SigningError(f"key {target}: {error.strerror or error}") from error
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text)
    return public


def sign_statement(statement: bytes, key: PrivateKey, before: bytes | None = None) -> Envelope:
    """Envelope of a Statement with one more signature.

    Parameters
    ----------
    statement
        The Statement's bytes.
    key
        Who signs.
    before
        An envelope of the same Statement that others signed; None for a first signature.

    Raises
    ------
    EnvelopeFault
        `before` is no envelope.
    SigningError
        `before` is about other bytes, or the key has signed it.
    """
    envelope = Envelope(statement, PAYLOAD_TYPE, ()) if before is None else parse_envelope(before)
    if envelope.payload != statement:
        raise SigningError("found an envelope of another Statement, allowed: one of this record, or none")
    if key.public.keyid in {one.keyid for one in envelope.signatures}:
        raise SigningError(f"found a signature by {key.public.keyid}, allowed: one signature a key")
    signature = key.sign(envelope.signed_bytes)
    return envelope._replace(signatures=(*envelope.signatures, signature))
