"""Fit of parameters to measured times: robust least squares of relative errors, with intervals.

The times come from the simulator, whose derivatives are taken by differences. Parameters and times count by their
logarithms, so that all errors are relative and no parameter becomes negative. What was known of a parameter before is
one more observation of it, a weak one; without it a parameter on which no time depends could be anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricsim.calibration.parameters import Parameter

Predict = Callable[[Sequence[float]], NDArray[np.float64]]

_OUTLYING = 0.05
"""Relative error that is assumed of a row, and from which it counts by its error, no longer by its square (Huber): runs
of other jobs disturb some rows, and no transport explains them."""
_STEPS = {"time": 0.1, "time per byte": 0.2, "share": 0.03}
"""Relative change by which a derivative is taken: more than the few per mille by which chunks get out of step."""
_MOST_ROUNDS = 12
_SETTLED = 0.05
"""Cost that a round must save to be followed by another: half of the square of a third of a standard error."""
_FURTHEST = 1.5  # most that the logarithm of a parameter changes in a round: a factor of 4.5
_SHARPER = 0.7  # share of the error assumed of a row below which the fit is repeated with the one that was found
_LEAST_ERROR = 0.02
"""Relative error of a row that is assumed at least: no model is right to the digits that a table prints."""
_DAMPINGS = 6
_LOOSE = 0.3  # share of what was uncertain before that may be left where data is said to determine a parameter


@dataclass(frozen=True)
class Estimate:
    """A parameter after the fit.

    `parameter`: which.
    `value`: the best value; that before the fit if no time depends on it.
    `low`, `high`: ends of the 95 % interval.
    `determined`: whether the data tells it.
    `at_bound`: whether the value is an end of the parameter's range.
    """

    parameter: Parameter
    value: float
    low: float
    high: float
    determined: bool
    at_bound: bool


@dataclass(frozen=True)
class Fit:
    """Outcome of a fit.

    `estimates`: of each parameter, in order.
    `spread`: robust standard deviation of relative errors.
    `residuals`: logarithms of predicted over measured times, shape ``(n,)``.
    """

    estimates: tuple[Estimate, ...]
    spread: float
    residuals: NDArray[np.float64]

    @property
    def values(self) -> list[float]:
        """Value of each parameter."""
        return [estimate.value for estimate in self.estimates]

    @property
    def errors(self) -> NDArray[np.float64]:
        """Relative error of each row, ``predicted / measured - 1``, shape ``(n,)``."""
        return np.expm1(self.residuals)


def fit(
    parameters: Sequence[Parameter],
    measured: NDArray[np.float64],
    predict: Predict,
    progress: Callable[[float], None] | None = None,
) -> Fit:
    """Fit parameters to measured times.

    Levenberg and Marquardt's method on Huber's loss. Intervals are those of the linear model at the optimum: the
    inverse of the weighted normal matrix over the variance of the residuals, with what was known before, and Student's
    quantile. Its degrees of freedom are the rows less the parameters that they tell of, each counted by the share of
    its variance that the rows took away. Intervals hold for errors that are independent from row to row.

    `parameters`: at least one.
    `measured`: seconds, shape ``(n,)``.
    `predict`: from values of the parameters to seconds, shape ``(n,)``.
    `progress`: called with the share of the rounds done.
    """
    search = _Search(parameters, np.log(measured), predict)
    place = search.start
    residuals = search.residuals(place)
    while True:
        place, residuals = _settled(search, place, residuals, progress)
        found = _outcome(search, place, residuals)
        sharper = max(found.spread, _LEAST_ERROR)
        if sharper > _SHARPER * search.outlying:
            return found
        search.outlying = sharper  # rows that agree better than was thought leave less to what was known before


def _settled(
    search: _Search,
    place: NDArray[np.float64],
    residuals: NDArray[np.float64],
    progress: Callable[[float], None] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Go on until a round saves nothing."""
    damping, saved = 1e-2, True
    for round_ in range(_MOST_ROUNDS):
        jacobian = search.jacobian(place, residuals)
        before = search.cost(place, residuals)
        place, residuals, damping, saved = search.improve(place, residuals, jacobian, damping)
        if progress is not None:
            progress((round_ + 1) / (_MOST_ROUNDS + 1))
        if not saved or before - search.cost(place, residuals) < _SETTLED:
            break
    return place, residuals


class _Search:
    """The problem in logarithms."""

    def __init__(self, parameters: Sequence[Parameter], measured: NDArray[np.float64], predict: Predict) -> None:
        self.parameters = list(parameters)
        self._measured, self._predict = measured, predict
        self.start = np.log([parameter.start for parameter in parameters])
        self.least = np.log([parameter.least for parameter in parameters])
        self.most = np.log([parameter.most for parameter in parameters])
        self.known = np.array([parameter.spread for parameter in parameters]) ** -2.0
        self.outlying = _OUTLYING

    def residuals(self, place: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(self._predict(np.exp(place).tolist())) - self._measured

    def jacobian(self, place: NDArray[np.float64], residuals: NDArray[np.float64]) -> NDArray[np.float64]:
        columns = []
        for number, parameter in enumerate(self.parameters):
            step = _STEPS[parameter.unit]
            if place[number] + step > self.most[number]:
                step = -step
            there = place.copy()
            there[number] += step
            columns.append((self.residuals(there) - residuals) / step)
        return np.array(columns).T

    def cost(self, place: NDArray[np.float64], residuals: NDArray[np.float64]) -> float:
        """Huber's loss in units of the error from which rows count less, and what was known before."""
        size = np.abs(residuals) / self.outlying
        rows = np.where(size < 1, size**2 / 2, size - 0.5).sum()
        return float(rows + (self.known * (place - self.start) ** 2).sum() / 2)

    def improve(
        self, place: NDArray[np.float64], residuals: NDArray[np.float64], jacobian: NDArray[np.float64], damping: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float, bool]:
        """Take the longest step that saves cost; the last value says whether there was one."""
        weights = _weights(residuals, self.outlying) / self.outlying**2
        matrix = (jacobian.T * weights) @ jacobian + np.diag(self.known)
        slope = (jacobian.T * weights) @ residuals + self.known * (place - self.start)
        before = self.cost(place, residuals)
        for _ in range(_DAMPINGS):
            step = -np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), slope)
            there = np.clip(place + np.clip(step, -_FURTHEST, _FURTHEST), self.least, self.most)
            found = self.residuals(there)
            if self.cost(there, found) < before:
                return there, found, damping / 5, True
            damping *= 5
        return place, residuals, damping, False


def _weights(residuals: NDArray[np.float64], outlying: float) -> NDArray[np.float64]:
    return np.minimum(1.0, outlying / np.maximum(np.abs(residuals), 1e-12))


def _outcome(search: _Search, place: NDArray[np.float64], residuals: NDArray[np.float64]) -> Fit:
    jacobian = search.jacobian(place, residuals)
    weights = _weights(residuals, search.outlying)
    normal = (jacobian.T * weights) @ jacobian
    squares = float((weights * residuals**2).sum())
    told, variance = 0.0, 0.0
    for _ in range(_MOST_ROUNDS):  # the variance says how many parameters the rows tell of, and the other way round
        variance = max(_LEAST_ERROR**2, squares / max(1.0, len(residuals) - told))
        covariance = np.linalg.inv(normal / variance + np.diag(search.known))
        told = float((1 - np.diag(covariance) * search.known).sum())
    deviation = np.sqrt(np.diag(covariance))
    wide = students_quantile(max(1, round(len(residuals) - told))) * deviation
    estimates = []
    for number, parameter in enumerate(search.parameters):
        determined = bool(deviation[number] < _LOOSE * parameter.spread)
        value = math.exp(place[number])
        low, high = (math.exp(place[number] + sign * min(wide[number], 50.0)) for sign in (-1, 1))
        bound = min(abs(place[number] - search.least[number]), abs(place[number] - search.most[number])) < _SETTLED
        low, high = max(low, parameter.least), min(high, parameter.most)
        estimates.append(Estimate(parameter, value, low, high, determined, determined and bool(bound)))
    return Fit(tuple(estimates), math.sqrt(variance), residuals)


def students_quantile(free: int) -> float:
    """Two-sided 95 % quantile of Student's t distribution with `free` degrees of freedom, at least 1.

    By Cornish and Fisher's expansion, Abramowitz and Stegun 26.7.5, which is 1 per mille off at 5 degrees of freedom;
    the values below that stand in a table.
    """
    few = (12.7062, 4.3027, 3.1824, 2.7764)
    if free <= len(few):
        return few[max(free, 1) - 1]
    x = 1.959964  # of the normal distribution
    terms = ((x**3 + x) / 4, (5 * x**5 + 16 * x**3 + 3 * x) / 96, (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384)
    return x + sum(term / float(free) ** (power + 1) for power, term in enumerate(terms))
