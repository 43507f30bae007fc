"""Plots as inline SVG: no script, colours from the page, a title and a description for readers who do not see them.

Every plot stands beside the table with the same figures; it shows the spread at a glance and replaces nothing.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, NamedTuple

from kvint2eval.report.escape import safe
from kvint2eval.report.html.figures import Curve, Spread, Trials, number

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["draw"]

_WIDTH, _HEIGHT = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 26, 44
# From this ratio of the largest to the smallest value on, a linear axis would show the small ones as one line.
_LOG_RATIO = 20.0
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4", "10 4", "4 2 1 2", "12 2", "3 6")
_MAX_TRIALS = 200
_LARGEST = 1e305
_MAX_KEYS = 11


class _Axis(NamedTuple):
    low: float
    high: float
    is_log: bool

    def place(self, value: float) -> float:
        """Height of a value in the plot, as y coordinate; held to the axis."""
        low, high, at = self.low, self.high, float(min(max(value, self.low), self.high))
        if self.is_log:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (at - low) / (high - low))

    def ticks(self) -> list[float]:
        """Round values along the axis."""
        if self.is_log:
            powers = range(
                math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1
            )
            return [10.0**power for power in powers][:: max(1, len(powers) // 6)]
        step = _round_step((self.high - self.low) / 4)
        first = math.ceil(self.low / step)
        return [index * step for index in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _round_step(raw: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))


def _round_down(raw: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (5, 2, 1, 0.5) if factor * power <= raw * (1 + 1e-9))


def _axis(values: Sequence[float]) -> _Axis:
    """Axis over values that are finite; logarithmic when all are positive and far apart, else from 0."""
    known = [value for value in values if abs(value) < _LARGEST]
    if not known:
        return _Axis(0.0, 1.0, is_log=False)
    low, high = min(known), max(known)
    if low > 0 and high > low * _LOG_RATIO:
        # Held to what a power of ten in binary64 can hold; what lies beyond is drawn at the edge.
        first, last = (min(max(math.log10(value), -300.0), 300.0) for value in (low, high))
        if last - first > 1:
            return _Axis(_round_down(10.0**first), _round_step(10.0**last), is_log=True)
        return _Axis(0.0, 1.0, is_log=False)
    low = min(low, 0.0)
    if high <= low:
        high = low + 1.0
    if high - low < 1e-290:
        return _Axis(0.0, 1.0, is_log=False)
    step = _round_step((high - low) / 4)
    top = math.ceil(high / step - 1e-9) * step
    return _Axis(math.floor(low / step + 1e-9) * step, top, is_log=False)


def _tick(value: float) -> str:
    return f"{value:,.6g}" if not value or 1e-3 <= abs(value) < 1e6 else f"{value:.0e}"


def draw(plot: Spread | Trials | Curve, identity: str) -> str:
    """SVG of a plot.

    Parameters
    ----------
    plot
        What is drawn; nothing for one without a value.
    identity
        Prefix of the element ids, unique on the page.
    """
    if not _values(plot):
        return ""
    if isinstance(plot, Spread):
        return _frame(plot.title, _spread_text(plot), identity, _draw_spread(plot))
    if isinstance(plot, Trials):
        return _frame(plot.title, _trials_text(plot), identity, _draw_trials(plot))
    return _frame(plot.title, _curve_text(plot), identity, _draw_curve(plot))


def _values(plot: Spread | Trials | Curve) -> list[float]:
    if isinstance(plot, Spread):
        ends = [
            end for _, mean, deviation in plot.points for end in (mean - deviation, mean, mean + deviation)
        ]
        # No mean is negative here: a bar that reaches below 0 is cut there, or at the foot of a logarithmic axis.
        return [end for end in ends if end > 0] or ends[:1]
    if isinstance(plot, Trials):
        return [value for _, values in plot.arms for value in values[:_MAX_TRIALS]]
    return [value for _, points, _ in plot.curves for _, value in points]


def _frame(title: str, text: str, identity: str, body: Sequence[str]) -> str:
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{identity}-t {identity}-d">'
        f'<title id="{identity}-t">{_text(title)}</title><desc id="{identity}-d">{_text(text)}</desc>'
        f"{''.join(body)}</svg><figcaption>{_text(title)}</figcaption></figure>"
    )


def _text(text: str) -> str:
    return html.escape(safe(text))


def _grid(axis: _Axis, unit: str) -> list[str]:
    """Lines and labels of the upright axis."""
    parts = []
    for value in axis.ticks():
        y = axis.place(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_tick(value)}</text>')
    label = " ".join(filter(None, (unit, "logarithmic axis" if axis.is_log else "")))
    if label:
        parts.append(f'<text x="{_LEFT}" y="14" class="unit">{html.escape(label)}</text>')
    return parts


def _zero_output(axis: _Axis, unit: str) -> list[str]:
    """Line at NMSE 1, the error of an output of zeros."""
    if unit or not axis.low < 1 < axis.high:
        return []
    y = axis.place(1)
    return [
        f'<line class="mark" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<text x="{_WIDTH - _RIGHT}" y="14" text-anchor="end" class="unit">dashed: 1, an output of zeros</text>',
    ]


def _columns(names: Sequence[str]) -> tuple[list[float], list[str]]:
    """Middle of each arm's column, and the labels below; of many arms only some are labelled."""
    wide = (_WIDTH - _LEFT - _RIGHT) / max(len(names), 1)
    places = [_LEFT + wide * (index + 0.5) for index in range(len(names))]
    step = math.ceil(len(names) / 20)
    y = _HEIGHT - _BOTTOM + 18
    labels = [
        f'<text x="{places[index]:.1f}" y="{y}" text-anchor="middle">{_text(names[index][:12])}</text>'
        for index in range(0, len(names), step)
    ]
    labels.append(f'<text x="{_LEFT}" y="{_HEIGHT - 6}" class="unit">rotation</text>')
    return places, labels


def _draw_spread(plot: Spread) -> list[str]:
    axis = _axis(_values(plot))
    places, parts = _columns([name for name, _, _ in plot.points])
    parts += _grid(axis, plot.unit) + _zero_output(axis, plot.unit)
    for x, (name, mean, deviation) in zip(places, plot.points, strict=True):
        top, bottom, y = axis.place(mean + deviation), axis.place(mean - deviation), axis.place(mean)
        parts.append(
            f'<g class="dot"><title>{_text(name)}: {number(mean)} ± {number(deviation)}</title>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/></g>'
        )
    return parts


def _draw_trials(plot: Trials) -> list[str]:
    shown = [(name, values[:_MAX_TRIALS]) for name, values in plot.arms]
    axis = _axis(_values(plot))
    places, parts = _columns([name for name, _ in shown])
    parts += _grid(axis, plot.unit) + _zero_output(axis, plot.unit)
    wide = (_WIDTH - _LEFT - _RIGHT) / max(len(shown), 1) * 0.6
    for x, (name, values) in zip(places, shown, strict=True):
        dots = "".join(
            f'<circle cx="{x + wide * ((at + 0.5) / len(values) - 0.5):.1f}" cy="{axis.place(value):.1f}" r="2.5"/>'
            for at, value in enumerate(values)
        )
        parts.append(f'<g class="dot"><title>{_text(name)}</title>{dots}</g>')
    return parts


def _draw_curve(plot: Curve) -> list[str]:
    axis = _axis(_values(plot))
    ratios = sorted({ratio for _, points, _ in plot.curves for ratio, _ in points})
    low, high = ratios[0], ratios[-1]

    def across(ratio: float) -> float:
        share = (ratio - low) / (high - low) if high > low else 0.5
        return _LEFT + 10 + (_WIDTH - _LEFT - _RIGHT - 110) * share

    step = math.ceil(len(ratios) / 12)
    parts = [
        f'<text x="{across(ratio):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{number(ratio)}</text>'
        for ratio in ratios[::step]
    ]
    parts.append(
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}" class="unit">clip ratio; a dot is the chosen one</text>'
    )
    parts += _grid(axis, "")
    for index, (name, points, chosen) in enumerate(plot.curves):
        line = " ".join(f"{across(ratio):.1f},{axis.place(value):.1f}" for ratio, value in sorted(points))
        dots = "".join(
            f'<circle cx="{across(ratio):.1f}" cy="{axis.place(value):.1f}" r="4"/>'
            for ratio, value in points
            if ratio == chosen
        )
        dash = _DASHES[index % len(_DASHES)]
        parts.append(
            f'<g class="dot"><title>{_text(name)}</title>'
            f'<polyline points="{line}" stroke-dasharray="{dash or "none"}"/>{dots}</g>'
        )
        if index < _MAX_KEYS:
            y = _TOP + index * 15
            x = _WIDTH - 92
            parts.append(
                f'<g class="dot"><line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" '
                f'stroke-dasharray="{dash or "none"}"/></g>'
                f'<text x="{x + 30}" y="{y + 4}">{_text(name[:9])}</text>'
            )
    return parts


def _spread_text(plot: Spread) -> str:
    each = "; ".join(
        f"{name}: {number(mean)} ± {number(deviation)}{plot.unit and f' {plot.unit}'}"
        for name, mean, deviation in plot.points[:40]
    )
    return f"{each}{_more(len(plot.points), 40)}"


def _trials_text(plot: Trials) -> str:
    each = "; ".join(
        f"{name}: {len(values)} trials from {number(min(values))} to {number(max(values))}"
        f"{plot.unit and f' {plot.unit}'}"
        + (f", the first {_MAX_TRIALS} drawn" if len(values) > _MAX_TRIALS else "")
        for name, values in plot.arms[:40]
        if values
    )
    return f"{each}{_more(len(plot.arms), 40)}"


def _curve_text(plot: Curve) -> str:
    each = "; ".join(
        f"{name}: least {number(min(value for _, value in points))}, chosen ratio {number(chosen)}"
        for name, points, chosen in plot.curves[:40]
        if points
    )
    return f"{each}{_more(len(plot.curves), 40)}"


def _more(count: int, shown: int) -> str:
    return f"; and {count - shown} more, in the table" if count > shown else ""
