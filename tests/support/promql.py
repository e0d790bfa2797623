"""
As much of Prometheus' rules as ours use: selectors, `max`, `min` and `sum` by labels, `rate`, `increase`, `absent`,
comparisons with a number, `and`; alerts that have to hold `for` a time. Without extrapolation: see
https://prometheus.io/docs/prometheus/latest/querying/basics/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LOOK_BACK = 300.0  # seconds within which a sample still counts
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
TOKEN = re.compile(r'\s*(?:(==|!=|>=|<=|=~|!~|[><(){},=\[\]])|"([^"]*)"|([A-Za-z_:][\w:]*|[\d.]+[smhd]?))')

Labels = Mapping[str, str]
Vector = list[tuple[Labels, float]]
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": lambda one, other: one == other,
    ">": lambda one, other: one > other,
    "<": lambda one, other: one < other,
}
AGGREGATE: dict[str, Callable[[Sequence[float]], float]] = {"max": max, "min": min, "sum": sum}


@dataclass(frozen=True)
class Series:
    """Samples of one name and its labels, by their times in seconds."""

    name: str
    labels: Labels
    samples: Sequence[tuple[float, float]]

    def within(self, since: float, until: float) -> list[float]:
        return [value for at, value in self.samples if since < at <= until]


def series_of(text: str, values: str, interval: float) -> Series:
    """Read a series as promtool's unit tests have it: `name{label="a"}`, `1x3 0+2x5 _`."""
    name, labels = re.fullmatch(r"([\w:]+)(?:\{(.*)\})?", text).groups()  # type: ignore[union-attr]
    found: list[float | None] = []
    for part in str(values).split():
        start, step, times = re.fullmatch(r"(_|[\d.]+)([+-][\d.]+)?(?:x(\d+))?", part).groups()  # type: ignore[union-attr]
        first = None if start == "_" else float(start)
        found += [None if first is None else first + number * float(step or 0) for number in range(int(times or 0) + 1)]
    samples = [(number * interval, value) for number, value in enumerate(found) if value is not None]
    return Series(name, dict(re.findall(r'(\w+)="([^"]*)"', labels or "")), samples)


def seconds(text: str | int) -> float:
    return float(str(text)[:-1]) * UNITS[str(text)[-1]] if str(text)[-1] in UNITS else float(text)


class Query:
    """One expression, evaluated at a time."""

    def __init__(self, text: str, series: Sequence[Series], at: float) -> None:
        self._tokens = [next(group for group in found if group) for found in TOKEN.findall(text)]
        assert "".join(self._tokens) == re.sub(r'[\s"]', "", text), f"cannot read {text}"
        self._series, self._at = series, at

    def vector(self) -> Vector:
        left = self._compared()
        while self._tokens and self._tokens[0] == "and":
            self._next()
            right = [dict(labels) for labels, _ in self._compared()]
            left = [one for one in left if dict(one[0]) in right]
        return left

    def _next(self, *expected: str) -> str:
        token: str = self._tokens.pop(0)
        assert not expected or token in expected, f"{token} in place of {expected}"
        return token

    def _compared(self) -> Vector:
        left = self._operand()
        if self._tokens and self._tokens[0] in COMPARE:
            compare, number = COMPARE[self._next()], float(self._next())
            return [(labels, value) for labels, value in left if compare(value, number)]
        return left

    def _operand(self) -> Vector:
        name = self._next()
        if name in AGGREGATE:
            by: list[str] = []
            if self._tokens[0] == "by":
                self._next()
                by = self._list()
            groups: dict[tuple[tuple[str, str], ...], list[float]] = {}
            for labels, value in self._inner():
                groups.setdefault(tuple((one, labels.get(one, "")) for one in by), []).append(value)
            return [(dict(key), AGGREGATE[name](values)) for key, values in groups.items()]
        if name == "absent":
            return [] if self._inner() else [({}, 1.0)]
        if name in {"rate", "increase"}:
            self._next("(")
            found = self._selected(self._next(), is_range=True)
            self._next(")")
            return [(labels, value / (found[1] if name == "rate" else 1.0)) for labels, value in found[0]]
        return self._selected(name, is_range=False)[0]

    def _inner(self) -> Vector:
        self._next("(")
        found = self.vector()
        self._next(")")
        return found

    def _list(self) -> list[str]:
        self._next("(")
        found = []
        while (token := self._next()) != ")":
            if token != ",":
                found.append(token)
        return found

    def _selected(self, name: str, *, is_range: bool) -> tuple[Vector, float]:
        wanted: list[tuple[str, str, str]] = []
        if self._tokens and self._tokens[0] == "{":
            self._next()
            while (token := self._next()) != "}":
                if token != ",":
                    wanted.append((token, self._next(), self._next()))
        chosen = [one for one in self._series if one.name == name and all(_fits(one.labels, *each) for each in wanted)]
        if not is_range:
            latest = [(one.labels, one.within(self._at - LOOK_BACK, self._at)) for one in chosen]
            return [(labels, values[-1]) for labels, values in latest if values], 0.0
        self._next("[")
        span = seconds(self._next())
        self._next("]")
        read = [(one.labels, one.within(self._at - span, self._at)) for one in chosen]
        return [(labels, values[-1] - values[0]) for labels, values in read if len(values) > 1], span


def _fits(labels: Labels, name: str, operator: str, value: str) -> bool:
    own = labels.get(name, "")
    is_same = re.fullmatch(value, own) is not None if operator.endswith("~") else own == value
    return is_same != operator.startswith("!")


def firing(rule: Mapping[str, Any], series: Sequence[Series], *, until: float, every: float) -> dict[float, Vector]:
    """At each evaluation up to that time, what an alerting rule fires; times without are left out."""
    since: dict[tuple[tuple[str, str], ...], float] = {}
    found: dict[float, Vector] = {}
    at = 0.0
    while at <= until:
        vector = {tuple(sorted(labels.items())): value for labels, value in Query(rule["expr"], series, at).vector()}
        since = {key: since.get(key, at) for key in vector}
        held = [key for key in vector if at - since[key] >= seconds(rule.get("for", "0s"))]
        if held:
            found[at] = [({**dict(key), **rule.get("labels", {})}, vector[key]) for key in held]
        at += every
    return found
