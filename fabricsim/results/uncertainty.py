"""How far a predicted iteration may be off, for what its parameters may be off."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NotRequired, TypedDict

INSIDE = 0.8
"""Share of the runs that the interval holds."""


class UncertaintySummary(TypedDict):
    """An uncertainty as JSON has it: times in seconds, the rest as in `Uncertainty` and `Influence`.

    ``jobs`` has ``name``, ``low_s`` and ``high_s`` of each of several jobs.
    """

    inside: float
    low_s: float
    high_s: float
    runs: int
    seed: int
    influences: list[dict[str, Any]]
    jobs: NotRequired[list[dict[str, Any]]]


@dataclass(frozen=True)
class Influence:
    """What the doubt about one parameter makes of the iteration.

    `key`, `value`, `certainty`: its path, what the preset says, and how certain that is, see
        `fabricsim.scenario.certainty`.
    `spread`: standard deviation of the logarithm of its factor.
    `change`, `change_smaller`: of the iteration if the parameter is one such deviation larger, and smaller, relative.
    `share`: of the variance of the iteration, among all parameters; each taken by itself, in the mean of both sides.
    """

    key: str
    value: str
    certainty: str
    spread: float
    change: float
    change_smaller: float
    share: float


@dataclass(frozen=True)
class Uncertainty:
    """An iteration simulated many times, each with other values of what is not known exactly.

    `low`, `high`: between them lie the middle `INSIDE` of the iterations, s; of several jobs those of the longest.
    `runs`, `seed`: how many were drawn, and from which seed.
    `influences`: parameters that change the iteration, the one that it owes most to first.
    `jobs`: of several jobs ``low`` and ``high`` of each by name, from its own start.
    """

    low: float
    high: float
    runs: int
    seed: int
    influences: Sequence[Influence]
    jobs: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_dict(self) -> UncertaintySummary:
        """All of it as plain Python values."""
        told: UncertaintySummary = {
            "inside": INSIDE,
            "low_s": self.low,
            "high_s": self.high,
            "runs": self.runs,
            "seed": self.seed,
            "influences": [asdict(each) for each in self.influences],
        }
        if self.jobs:
            told["jobs"] = [{"name": name, "low_s": low, "high_s": high} for name, (low, high) in self.jobs.items()]
        return told
