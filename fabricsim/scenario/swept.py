"""What a user may write in the file of a sweep."""

from typing import Annotated, Any, Literal

from pydantic import Field

from fabricsim.scenario.base import Spec
from fabricsim.scenario.model import Positive

Count = Annotated[int, Field(ge=1, le=100_000)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SentTraffic(Spec):
    """What is sent if a sweep is one of traffic: options of ``fabricsim traffic``."""

    pattern: str
    size: str | None = None
    flows: Positive | None = None
    load: float | None = None


class TimedCollective(Spec):
    """What is timed if a sweep is one of benchmarks: a test of ``fabricsim bench``, and one size."""

    test: str
    size: str = "1GiB"


class ReplayedTrace(Spec):
    """What is replayed if a sweep is one of replays: options of ``fabricsim replay``."""

    trace: str | list[str]
    transport: str | None = None
    gpu_speed: Factor = 1.0
    message_size: Factor = 1.0
    scale_to: Positive | None = None
    ranks: Positive | None = None
    ranks_per_host: Positive | None = None


class Sample(Spec):
    """Points drawn from ranges and lists, by Latin hypercube (McKay, Beckman, Conover, Technometrics 21(2), 1979)."""

    count: Count
    seed: Annotated[int, Field(ge=0)] = 0
    keys: dict[str, Any]


class Picture(Spec):
    """A picture of the index: lines or a frontier of ``y`` over ``x``, or a heat map of ``value``.

    ``by`` groups lines, or points of a frontier, which ``label`` names.
    """

    kind: Literal["lines", "heat-map", "frontier"] = "lines"
    x: str
    y: str
    value: str | None = None
    by: str | None = None
    label: str | None = None


class SweptScenario(Spec):
    """The file of a sweep: a scenario, what all runs have in common, and what they differ in.

    ``grid`` combines all values of its keys with one another, with each of ``points``, which are written out, and with
    each of the points of ``sample``. By ``prices``, a list of the library or a file, networks are priced.
    """

    name: Annotated[str, Field(pattern=r"^[\w.-]{1,80}$")] | None = None
    scenario: str
    settings: dict[str, Any] = Field(default_factory=dict)
    traffic: SentTraffic | None = None
    bench: TimedCollective | None = None
    replay: ReplayedTrace | None = None
    grid: dict[str, Any] = Field(default_factory=dict)
    points: list[dict[str, Any]] = Field(default_factory=list)
    sample: Sample | None = None
    pictures: list[Picture] = Field(default_factory=list)
    prices: str | None = None
    keep_results: bool = False
