"""Policies: whose signatures a record needs, and which producers are allowed.

A policy file is TOML:

```toml
format = "kvint2eval-policy/v1"
threshold = 1                      # keys that have to sign
expires = 2027-12-31T00:00:00Z     # after this nothing is trusted
producers = ["b6c5…5520"]          # optional: digests of allowed producers
require = "bound"                  # optional: every digest of a record is bound to a file

[[key]]
name = "release"                   # for people
path = "release.pub"               # PEM, relative to the policy file
# public = "-----BEGIN PUBLIC KEY-----…", in place of path
```

Keys are Ed25519 or ECDSA P-256. A key's id is the SHA-256 of its SubjectPublicKeyInfo (DER), so a policy cannot list
one key as two. Verification needs the extra `sign`.
"""

from __future__ import annotations

import os
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.errors import InputError, PinsError, PolicyError, SigningError
from kvint2eval.files.digest import is_digest, open_regular
from kvint2eval.files.paths import resolve_inside
from kvint2eval.signing.envelope import (
    ENVELOPE_KEY_TWICE,
    ENVELOPE_MALFORMED,
    EnvelopeFault,
    check_statement,
    parse_envelope,
)
from kvint2eval.signing.trust import Trust
from kvint2eval.strict_json.describe import describe
from kvint2eval.verdict import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvint2eval.signing.envelope import Envelope
    from kvint2eval.signing.keys import PublicKey

__all__ = ["FORMAT", "Policy", "parse_policy", "read_policy"]

FORMAT = "kvint2eval-policy/v1"
MAX_POLICY_BYTES = 1 << 20

_KEYS = ("format", "threshold", "expires", "producers", "require", "key")


POLICY_EXPIRED = Code(
    "policy-expired",
    Reason.UNTRUSTED,
    "The policy has expired.",
    "Renew the policy.",
    "a policy that expired yesterday",
)
ENVELOPE_MISSING = Code(
    "envelope-missing",
    Reason.UNTRUSTED,
    "The record is not signed.",
    "Sign it: kvint2eval sign RECORD --key KEY writes RECORD.dsse.",
    "a record without its .dsse file",
)
SIGNATURE_UNKNOWN_KEY = Code(
    "signature-unknown-key",
    Reason.UNTRUSTED,
    "No signature is by a key of the policy.",
    "Let a trusted key sign, or add the key to the policy.",
    "a signature by a stranger",
)
SIGNATURE_INVALID = Code(
    "signature-invalid",
    Reason.UNTRUSTED,
    "A signature by a key of the policy does not fit the payload.",
    "The payload was changed after it was signed: sign the record that is meant.",
    "a swapped payload",
)
SIGNATURE_THRESHOLD = Code(
    "signature-threshold",
    Reason.UNTRUSTED,
    "Fewer keys of the policy signed than its threshold.",
    "Collect the missing signatures: kvint2eval sign adds to an envelope.",
    "one signature under a threshold of 2",
)


class Policy(NamedTuple):
    """Whom to trust."""

    threshold: int
    """Keys that have to sign."""
    keys: Mapping[str, PublicKey]
    """The keys by their id."""
    expires: datetime
    """When the policy ends."""
    is_expired: bool
    """Whether it had ended when it was read."""
    producers: frozenset[str] | None
    """Digests of the allowed producers; None allows all."""
    require_bound: bool = False
    """Whether every digest of a record has to be bound to a file."""

    def verify(self, record: bytes, envelope: bytes | InputError | None) -> Trust | Finding:
        """What the signatures of a record are worth, or why it is not trusted.

        Parameters
        ----------
        record
            The record's bytes; not parsed here.
        envelope
            The bytes of its envelope, or why they cannot be read; None when it has none.

        Notes
        -----
        Order: the policy has not expired; the envelope is well-formed; its signatures are verified over the
        payload's bytes; only then the payload is parsed, and its subject compared with the record's digest.
        """
        if self.is_expired:
            ended = self.expires.isoformat()
            return Finding(POLICY_EXPIRED, "policy:/expires", f"a policy that ended {ended}", "a later date")
        if envelope is None:
            allowed = "a signed record: a file with RECORD.dsse beside it, and no line of JSON Lines"
            return Finding(ENVELOPE_MISSING, "envelope:", "no envelope", allowed)
        if isinstance(envelope, InputError):
            return Finding(ENVELOPE_MALFORMED, "envelope:", str(envelope), "an envelope that can be read")
        try:
            parsed = parse_envelope(envelope)
            signers = self._signers(parsed)
            check_statement(parsed.payload, record)
        except EnvelopeFault as fault:
            return fault.located(envelope)
        return Trust(tuple(signers), self.producers)

    def _signers(self, envelope: Envelope) -> list[str]:
        """Ids of the policy's keys whose signatures fit, each once; an id in the envelope is a hint, as DSSE has it."""
        signers: dict[str, int] = {}
        for index, signature in enumerate(envelope.signatures):
            hinted = self.keys.get(signature.keyid)
            keys = self.keys.values() if hinted is None else (hinted,)
            fitting = [key.keyid for key in keys if key.verifies(signature.value, envelope.signed_bytes)]
            if hinted is not None and not fitting:
                raise EnvelopeFault(
                    SIGNATURE_INVALID,
                    f"/signatures/{index}/sig",
                    f"a signature by {signature.keyid} over other bytes",
                    "one over the payload",
                )
            for keyid in fitting:
                if keyid in signers:
                    found = f"a second signature by {keyid}"
                    raise EnvelopeFault(
                        ENVELOPE_KEY_TWICE, f"/signatures/{index}", found, "one signature a key"
                    )
                signers[keyid] = index
        if not signers:
            found = ", ".join(
                describe(one.keyid) if one.keyid else "no key id" for one in envelope.signatures
            )
            raise EnvelopeFault(
                SIGNATURE_UNKNOWN_KEY, "/signatures", found, "a signature by a key of the policy"
            )
        if len(signers) < self.threshold:
            found = f"{len(signers)} of the policy's keys"
            raise EnvelopeFault(SIGNATURE_THRESHOLD, "/signatures", found, f"at least {self.threshold}")
        return list(signers)


def read_policy(path: str | os.PathLike[str], now: datetime | None = None) -> Policy:
    """Policy of a policy file.

    Parameters
    ----------
    path
        The file.
    now
        The time that its end is compared with; the present by default.

    Raises
    ------
    PolicyError
        The file cannot be read, or is not a policy; the message says what was found, what is allowed, where.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            data = stream.read(MAX_POLICY_BYTES + 1)
    except InputError as error:
        raise PolicyError(f"policy {error}") from error
    if len(data) > MAX_POLICY_BYTES:
        raise PolicyError(f"policy {path}: found more than {MAX_POLICY_BYTES} bytes, allowed: at most that")
    try:
        return parse_policy(tomllib.loads(data.decode()), Path(path).parent, now)
    except UnicodeDecodeError as error:
        raise PolicyError(f"policy {path}: found a byte that is not UTF-8 at {error.start}") from error
    except RecursionError as error:
        raise PolicyError(f"policy {path}: found tables nested too deep") from error
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"policy {path}: not TOML: {error}") from error
    except (PolicyError, SigningError) as error:
        raise PolicyError(f"policy {path}: {error}") from error


def parse_policy(tables: Mapping[str, Any], root: Path, now: datetime | None = None) -> Policy:
    """Policy of parsed TOML tables.

    Parameters
    ----------
    tables
        The top level of a policy file.
    root
        Folder that the paths are relative to.
    now
        The time that the policy's end is compared with; the present by default.

    Raises
    ------
    PolicyError
        A key or a value is not allowed, or one key stands twice.
    """
    unknown = sorted(set(tables) - set(_KEYS))
    if unknown:
        raise PolicyError(f"found key {unknown[0]!r}, allowed: {', '.join(_KEYS)}")
    if tables.get("format") != FORMAT:
        raise PolicyError(f'found format {tables.get("format")!r}, allowed: format = "{FORMAT}"')
    keys = _parse_keys(tables.get("key"), root)
    threshold = tables.get("threshold")
    if type(threshold) is not int or not 1 <= threshold <= len(keys):
        raise PolicyError(f"found threshold {threshold!r}, allowed: 1 to {len(keys)}, the number of keys")
    expires = tables.get("expires")
    if not isinstance(expires, datetime) or expires.tzinfo is None:
        raise PolicyError(f"found expires {expires!r}, allowed: a date and time with its offset from UTC")
    producers = tables.get("producers")
    if producers is not None and not (
        isinstance(producers, list)
        and producers
        and all(isinstance(one, str) and is_digest(one) for one in producers)
    ):
        raise PolicyError(f"found producers {producers!r}, allowed: SHA-256 digests, at least one")
    require = tables.get("require")
    if require not in (None, "bound"):
        raise PolicyError(f'found require {describe(require)}, allowed: require = "bound"')
    is_expired = (now or datetime.now(UTC)) >= expires
    allowed = None if producers is None else frozenset(producers)
    return Policy(threshold, keys, expires, is_expired, allowed, require is not None)


def _parse_keys(entries: Any, root: Path) -> dict[str, PublicKey]:
    from kvint2eval.signing.keys import load_public_key  # noqa: PLC0415  # needs the extra `sign`

    if not isinstance(entries, list) or not entries:
        raise PolicyError("found no key, allowed: one [[key]] table or more")
    keys: dict[str, PublicKey] = {}
    for number, entry in enumerate(entries, 1):
        try:
            key = load_public_key(_pem(entry, root))
        except (PolicyError, SigningError) as error:
            raise PolicyError(f"key {number}: {error}") from error
        if key.keyid in keys:
            raise PolicyError(f"key {number}: found {key.keyid} twice, allowed: each key once")
        keys[key.keyid] = key
    return keys


def _pem(entry: Any, root: Path) -> bytes:
    """PEM text of a `[[key]]` table."""
    if not isinstance(entry, dict):
        raise PolicyError(f"found {entry!r}, allowed: a table")
    for name, value in entry.items():
        if name not in ("name", "path", "public") or not isinstance(value, str) or not value:
            raise PolicyError(f"found {name} = {value!r}, allowed: texts name, path, public")
    if ("path" in entry) == ("public" in entry):
        found = "both" if "path" in entry else "neither"
        raise PolicyError(f"found {found} of path and public, allowed: one of them")
    if "public" in entry:
        return str(entry["public"]).encode()
    try:
        with os.fdopen(open_regular(resolve_inside(root, entry["path"])), "rb") as stream:
            return stream.read(MAX_POLICY_BYTES)
    except (InputError, PinsError) as error:
        raise PolicyError(str(error)) from error
