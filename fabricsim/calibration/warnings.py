"""What measured tables cannot tell of a transport, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fabricsim.calibration.fit import Estimate, Fit
    from fabricsim.calibration.measurements import Measurement

    Rows = Sequence[tuple[Measurement, Sequence[str]]]

_FEW = 3  # rows below which the parameters of a protocol rest on hardly more than themselves
_SMALL = 2**16  # bytes up to which a message takes longer to hand over than to send, on any network of 10 Gb/s and more


def of_fit(fit: Fit, rows: Rows) -> Iterator[str]:
    """Yield a sentence for each parameter that the data does not determine, and for each that it hardly does.

    `fit`: the estimates.
    `rows`: tables that were fitted, and the algorithm and protocol of each row.
    """
    for estimate in fit.estimates:
        sizes = _sizes(estimate, rows)
        if not estimate.determined:
            yield f"{estimate.parameter.name} is not determined: {_reason(estimate, sizes)}"
        elif estimate.at_bound:
            yield (
                f"{estimate.parameter.name} went to an end of its range: the data may lie beyond what the model does; "
                "see the cluster's description"
            )
        elif len(sizes) < _FEW:
            yield f"{estimate.parameter.name} rests on {len(sizes)} rows; give a table with more sizes"


def _sizes(estimate: Estimate, rows: Rows) -> list[int]:
    """Sizes of the rows that a parameter takes part in."""
    return sorted(
        int(size)
        for table, ways in rows
        for size, way in zip(table.sizes, ways, strict=True)
        if estimate.parameter.concerns(way)
    )


def _reason(estimate: Estimate, sizes: Sequence[int]) -> str:
    span = f"{len(sizes)} rows from {human_bytes(sizes[0])} to {human_bytes(sizes[-1])}"
    if estimate.parameter.role == "bandwidth":
        if sizes[-1] <= _SMALL:
            return f"the table ends at {human_bytes(sizes[-1])}, where latency decides; measure up to 256 MiB"
        return f"something else is narrower in all of the {span}"
    if len(sizes) < _FEW:
        return f"it has only {span}; measure more sizes"
    if estimate.parameter.role == "latency":
        return f"in the {span} other times are much longer; measure smaller sizes"
    ratio = float(np.log2(sizes[-1] / sizes[0]))
    return f"the {span}, {ratio:.0f} doublings, go with latency and bandwidth alone"
