"""Schemes that a user writes as TOML: a table, or a file with one or several.

A table changes a scheme, by default one without rotation, centring and clips, field by field; `[[layers]]` tables
change it again for some layers. What is allowed is checked before anything is fitted, and a fault is named by its key.
docs/schemes.md has a whole example.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from producer.errors import SpecError
from producer.quantize import DIALECTS, PAIRS, get_dialect
from producer.quantize.feedback import takes_feedback
from producer.quantize.steps import clip_defect
from producer.scheme.clip_tuning import GRIDS
from producer.scheme.registry import FITTED_ROTATIONS, SCHEMES, Rounding, Scheme, Weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["OwnScheme", "content_of", "parse_schemes", "read_schemes"]

_SIDES = ("key", "value")
_BITS = re.compile(r"-(\d)bit\b")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
#: What a table changes where it names no scheme to begin with: groups of a whole head, no rotation, no clip.
_PLAIN = Scheme(
    name="plain", key_dialect="affine-midpoint", value_dialect="affine-midpoint", key_clip=1.0, value_clip=1.0
)


@dataclass(frozen=True, slots=True)
class OwnScheme:
    """A scheme, and what some layers have in its place.

    Attributes
    ----------
    scheme : Scheme
    layers : tuple of (tuple of int, Scheme)
        Layers, counted from the last one where they are below 0, and the scheme that they have; later ones win.
    """

    scheme: Scheme
    layers: tuple[tuple[tuple[int, ...], Scheme], ...] = ()

    def of_layers(self, num_layers: int) -> list[Scheme]:
        """Return the scheme of every layer of a model.

        Raises
        ------
        SpecError
            If a layer is named that the model does not have.
        """
        found = [self.scheme] * num_layers
        for indices, scheme in self.layers:
            for index in indices:
                if not -num_layers <= index < num_layers:
                    raise SpecError(
                        f"scheme {self.scheme.name!r}: layers: found {index}, allowed: {-num_layers} … {num_layers - 1}"
                    )
                found[index] = scheme
        return found


def read_schemes(path: Path) -> list[OwnScheme]:
    """Return the schemes of a TOML file: its one table, or its `[[scheme]]` tables.

    Raises
    ------
    SpecError
        If the file is no TOML, or a table is not allowed; with the key, what was found and what is allowed.
    OSError
        If it cannot be read.
    """
    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{path}: not TOML: {error}") from error
    return _schemes(content, str(path))


def parse_schemes(text: str) -> list[OwnScheme]:
    """Return the scheme of an inline TOML table, such as ``{name = "mine", keys = {bits = 3}}``.

    Raises
    ------
    SpecError
        As `read_schemes`.
    """
    try:
        content = tomllib.loads(f"scheme = {text}")["scheme"]
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(f"--scheme: not a TOML table: {error}") from error
    return _schemes(content, "--scheme")


def _schemes(content: Any, where: str) -> list[OwnScheme]:
    if not isinstance(content, dict):
        raise SpecError(f"{where}: found {_kind(content)}, allowed: a table")
    if "scheme" not in content:
        return [_own(_Table(where, "", content))]
    if len(content) > 1 or not isinstance(content["scheme"], list) or not content["scheme"]:
        others = ", ".join(sorted(content.keys() - {"scheme"})) or _kind(content["scheme"])
        raise SpecError(
            f"{where}: scheme: found {others} beside it, allowed: [[scheme]] tables and nothing else"
        )
    found = [_own(_Table(where, f"scheme[{place}].", table)) for place, table in enumerate(content["scheme"])]
    names = [one.scheme.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"{where}: name: found {name!r} twice, allowed: a name for each scheme")
    return found


def _kind(value: Any) -> str:
    """Return what a TOML value is, in TOML's words."""
    names = {
        dict: "a table",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a float",
    }
    return names.get(type(value), type(value).__name__)


class _Table:
    """A table whose entries are taken one by one, so that unknown ones are left."""

    def __init__(self, where: str, prefix: str, table: Any) -> None:
        self.where, self.prefix = where, prefix
        if not isinstance(table, dict):
            self._refuse("", table, "a table")
        self._left = dict(table)

    def _refuse(self, key: str, found: Any, allowed: str) -> None:
        shown = _kind(found) if isinstance(found, dict | list) else repr(found)
        raise SpecError(f"{self.where}: {(self.prefix + key).rstrip('.')}: found {shown}, allowed: {allowed}")

    def take(self, key: str, allowed: str, is_allowed: Callable[[Any], bool]) -> Any:
        """Return an entry, or None where it is missing."""
        if key not in self._left:
            return None
        value = self._left.pop(key)
        if not is_allowed(value):
            self._refuse(key, value, allowed)
        return value

    def one_of(self, key: str, names: tuple[str, ...]) -> Any:
        return self.take(key, ", ".join(names), lambda value: isinstance(value, str) and value in names)

    def number(self, key: str, low: float, high: float) -> Any:
        found = self.take(key, f"a number, {low:g} … {high:g}", lambda value: _is_number(value, low, high))
        return None if found is None else float(found)

    def whole(self, key: str, low: int) -> Any:
        return self.take(key, f"an integer, {low} or more", lambda value: type(value) is int and value >= low)

    def table(self, key: str) -> _Table | None:
        if key not in self._left:
            return None
        return _Table(self.where, f"{self.prefix}{key}.", self._left.pop(key))

    def array(self, key: str) -> list[Any]:
        found = self.take(key, "an array", lambda value: isinstance(value, list))
        return found or []

    def refuse(self, key: str, found: Any, allowed: str) -> None:
        """Raise `SpecError` about an entry."""
        self._refuse(key, found, allowed)

    def done(self, known: str) -> None:
        """Raise `SpecError` if an unknown entry is left."""
        for key in self._left:
            raise SpecError(
                f"{self.where}: {self.prefix}{key}: found a key that is not known, allowed: {known}"
            )


def _is_number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high


def _own(table: _Table) -> OwnScheme:
    name = table.take("name", "a name of letters, digits and . _ @ + -", _is_name)
    if name is None:
        raise SpecError(f"{table.where}: {table.prefix}name: found nothing, allowed: the name of the scheme")
    base = table.one_of("base", tuple(SCHEMES))
    start = replace(_PLAIN if base is None else SCHEMES[base], name=name)
    windows = table.table("windows")
    if windows is not None:
        start = replace(start, **_given(sink=windows.whole("sink", 0), recent=windows.whole("recent", 0)))
        windows.done("sink, recent")
    layers = table.array("layers")
    scheme = _changed(
        start, table, "name, base, centred, rounding, keys, values, windows, covariances, layers"
    )
    if name in SCHEMES and scheme != SCHEMES[name]:
        table.refuse("name", name, "a name that no scheme of the registry has: one name is one computation")
    by_layer = [
        _layers(scheme, _Table(table.where, f"{table.prefix}layers[{place}].", one))
        for place, one in enumerate(layers)
    ]
    return OwnScheme(scheme, tuple(by_layer))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _layers(scheme: Scheme, table: _Table) -> tuple[tuple[int, ...], Scheme]:
    indices = table.take(
        "layers",
        "an array of at least one integer",
        lambda value: isinstance(value, list) and value != [] and all(type(one) is int for one in value),
    )
    if indices is None:
        raise SpecError(
            f"{table.where}: {table.prefix}layers: found nothing, allowed: the layers that it is for"
        )
    return tuple(indices), _changed(scheme, table, "layers, centred, rounding, keys, values, covariances")


def _changed(start: Scheme, table: _Table, known: str) -> Scheme:
    """Return a scheme with what a table says of it in place of what it had."""
    scheme = replace(
        start,
        **_given(
            center_keys=table.take("centred", "true or false", lambda value: type(value) is bool),
            rounding=table.one_of("rounding", get_args(Rounding)),
        ),
    )
    weights = table.table("covariances")
    if weights is not None:
        scheme = replace(
            scheme,
            **_given(
                weights=weights.one_of("weights", get_args(Weights)),
                shrinkage=weights.number("shrinkage", 0, 1),
                balance=weights.number("balance", 0, 1),
            ),
        )
        weights.done("weights, shrinkage, balance")
    clips: dict[str, Any] = {}
    for side in _SIDES:
        own = table.table(f"{side}s")
        if own is not None:
            scheme, clips[side] = _side(scheme, side, own)
    table.done(known)
    return _with_clips(scheme, clips, table)


def _side(scheme: Scheme, side: str, table: _Table) -> tuple[Scheme, Any]:
    """Return a scheme with what a table says of its keys or values, and the clip that it says."""
    transform = table.one_of("transform", FITTED_ROTATIONS)
    held = getattr(scheme, f"{side}_dialect")
    named = table.one_of("dialect", (*DIALECTS, *PAIRS))
    pair = PAIRS.get(named)
    dialect = held if named is None else named if pair is None else pair[_SIDES.index(side)]
    bits = table.whole("bits", 1)
    if bits is not None:
        family = _BITS.sub("", dialect)
        members = {
            get_dialect(name).numerics.bits: name for name in DIALECTS if _BITS.sub("", name) == family
        }
        if bits not in members:
            table.refuse("bits", bits, f"{', '.join(map(str, sorted(members)))} with the dialect {family!r}")
        dialect = members[bits]
    group = table.whole("group_size", 0)
    if side == "value" and group == 0 and scheme.group_size:
        table.refuse("group_size", 0, "the channels of a group: 0 stands for the group of keys")
    changes = _given(
        **{
            f"{side}_rotation": transform,
            f"{side}_dialect": dialect,
            f"{side}_ridge": table.number("ridge", 0, 1),
            "group_size" if side == "key" else "value_group_size": group,
        }
    )
    clip = table.take(
        "clip", 'a number, 0 … 1, or "tuned"', lambda value: value == "tuned" or _is_number(value, 0, 1)
    )
    table.done("transform, dialect, bits, group_size, clip, ridge")
    is_other = get_dialect(dialect).numerics.clip_kind != get_dialect(held).numerics.clip_kind
    if clip is None and is_other:
        # A ratio of another meaning says nothing: without one there is no clip.
        clip = 0.0 if get_dialect(dialect).numerics.clip_kind in {"order-statistic", "binary-search"} else 1.0
    return replace(scheme, **changes), clip


def _with_clips(scheme: Scheme, clips: dict[str, Any], table: _Table) -> Scheme:
    """Return a scheme with its clips, once all that depends on both sides is known to be allowed."""
    tuned = [side for side, clip in clips.items() if clip == "tuned"]
    fixed = [side for side, clip in clips.items() if clip is not None and clip != "tuned"]
    if len(fixed) == 1 and scheme.clips == "tuned" and not tuned:
        table.refuse(f"{fixed[0]}s.clip", clips[fixed[0]], 'a ratio for keys and for values, or "tuned"')
    if len(tuned) == 1 and (fixed or scheme.clips == "fixed"):
        table.refuse(f"{tuned[0]}s.clip", "tuned", '"tuned" for keys and values, or a ratio for each')
    if tuned:
        scheme = replace(
            scheme,
            clips="tuned",
            key_clip=_fallback(scheme.key_dialect),
            value_clip=_fallback(scheme.value_dialect),
        )
    elif fixed:
        changes: dict[str, Any] = {f"{side}_clip": float(clips[side]) for side in fixed}
        scheme = replace(scheme, clips="fixed", **changes)
    for side in _SIDES:
        _require_side(scheme, side, table)
    if scheme.value_group_size == scheme.group_size:
        scheme = replace(scheme, value_group_size=0)
    return scheme


def _require_side(scheme: Scheme, side: str, table: _Table) -> None:
    """Raise `SpecError` unless what keys, or values, have now is allowed together."""
    numerics = get_dialect(getattr(scheme, f"{side}_dialect")).numerics
    name = getattr(scheme, f"{side}_dialect")
    if scheme.clips == "tuned" and (numerics.clip_kind not in GRIDS or numerics.group_axis != "channels"):
        table.refuse(f"{side}s.clip", "tuned", f"1: {name} has no clip by head that could be chosen")
    allowed = clip_defect(numerics.clip_kind, getattr(scheme, f"{side}_clip"))
    if allowed is not None:
        table.refuse(f"{side}s.clip", getattr(scheme, f"{side}_clip"), f"{allowed} with the dialect {name!r}")
    if scheme.rounding == "feedback" and not takes_feedback(get_dialect(name)):
        names = ", ".join(one for one, dialect in DIALECTS.items() if takes_feedback(dialect))
        table.refuse(f"{side}s.dialect", name, f'{names}, with rounding = "feedback"')
    size = scheme.group_of(side)
    if numerics.group_axis == "tokens" and size and scheme.sink % size:
        table.refuse("windows.sink", scheme.sink, f"a multiple of {size}, the tokens of a group of {side}s")


def _fallback(dialect: str) -> float:
    """Return the ratio of a head that no ratio changes."""
    return 0.0 if get_dialect(dialect).numerics.clip_kind in {"order-statistic", "binary-search"} else 1.0


def content_of(own: OwnScheme) -> list[dict[str, Any]]:
    """Return what layers have in place of the scheme, as JSON values: the fields that differ."""
    base = asdict(own.scheme)
    return [
        {
            "layers": list(indices),
            **{name: value for name, value in asdict(scheme).items() if value != base[name]},
        }
        for indices, scheme in own.layers
    ]
