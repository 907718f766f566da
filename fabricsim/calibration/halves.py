"""How well half of a table tells the other half, over many random halves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabricsim.calibration.calibrate import Compared, calibrate
from fabricsim.calibration.measurements import Measurement
from fabricsim.errors import InputError

JUDGED = 1024
"""Bytes from which rows are judged: all smaller ones take about the same time, which flatters."""
MEDIAN, TAIL = 0.10, 0.25
"""Largest median and 90th percentile of the absolute errors with which a half is said to hold."""


@dataclass(frozen=True)
class Half:
    """One calibration on half of the sizes.

    `hold_out`: which half was held out, as in `fabricsim.calibration.measurements.split`.
    `sizes`: sizes that were held out and are judged, bytes, shape ``(n,)``.
    `errors`, `errors_out_of_place`, `noise`: relative errors of their predictions, against the undisturbed times and
        those out of place; and how far the undisturbed times themselves are from those out of place, which no model can
        tell. Shape ``(n,)``.
    """

    hold_out: str
    sizes: NDArray[np.int64]
    errors: NDArray[np.float64]
    errors_out_of_place: NDArray[np.float64]
    noise: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """Give what JSON holds of it."""
        figures = {
            "error of time": self.errors,
            "error of time out of place": self.errors_out_of_place,
            "noise": self.noise,
        }
        found: dict[str, Any] = {"hold_out": self.hold_out, "sizes": self.sizes.tolist()}
        for label, errors in figures.items():
            found[label] = errors.tolist()
            found[f"{label}, median"], found[f"{label}, 90th percentile"] = middle_and_tail(errors)
        return found


def middle_and_tail(errors: NDArray[np.float64]) -> tuple[float, float]:
    """Median and 90th percentile of absolute errors of shape ``(n,)``."""
    size = np.abs(errors)
    return float(np.median(size)), float(np.percentile(size, 90))


def holds(errors: NDArray[np.float64]) -> bool:
    """Say whether errors of shape ``(n,)`` are within `MEDIAN` and `TAIL`."""
    middle, tail = middle_and_tail(errors)
    return middle <= MEDIAN and tail <= TAIL


def halves(
    base: str,
    settings: Sequence[str],
    tables: Sequence[Measurement],
    count: int,
    progress: Callable[[float], None] | None = None,
) -> list[Half]:
    """Calibrate on both alternate halves of the sizes, and on so many random ones.

    `base`, `settings`, `tables`: as in `fabricsim.calibration.calibrate.calibrate`.
    `count`: random halves, at least 0; drawn by the seeds from 1 on.
    Raises InputError: as `calibrate`, and where no size of a half is judged.
    """
    names = ["half", "other-half", *map(str, range(1, count + 1))]
    found = []
    for number, name in enumerate(names, start=1):
        calibrated = calibrate(base, settings, tables, name)
        found.append(_half(name, calibrated.rows(held_out=True)))
        if progress is not None:
            progress(number / len(names))
    return found


def _half(name: str, rows: Sequence[Compared]) -> Half:
    judged = [each.measurement.sizes >= JUDGED for each in rows]
    if not any(mask.any() for mask in judged):
        msg = f"--halves: no size of {JUDGED} bytes or more is held out ({name}); give a table with larger ones"
        raise InputError(msg)

    def column(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([each[mask] for each, mask in zip(values, judged, strict=True)])

    measured = [each.measurement for each in rows]
    return Half(
        name,
        column([each.sizes for each in measured]),
        column([each.errors for each in rows]),
        column([each.errors_out_of_place for each in rows]),
        column([each.undisturbed / each.seconds - 1.0 for each in measured]),
    )
