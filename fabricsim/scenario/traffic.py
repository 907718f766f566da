"""Distributions of flow sizes, for traffic that is drawn at random."""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from fabricsim.errors import InputError
from fabricsim.scenario import library
from fabricsim.scenario.base import Spec
from fabricsim.scenario.quantity import Bytes
from fabricsim.scenario.source import parse, read_text
from fabricsim.scenario.tree import plain


class SizePoint(Spec):
    """A point of a distribution: the share of flows of up to this size."""

    size: Bytes
    share: Annotated[float, Field(gt=0, le=1)]


class FlowSizes(Spec):
    """A distribution of flow sizes, linear between its points and from 0 bytes to the first."""

    name: str
    points: Annotated[tuple[SizePoint, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _is_a_distribution(self) -> Self:
        for lower, upper in pairwise(self.points):
            if upper.size <= lower.size or upper.share <= lower.share:
                raise ValueError(f"the point at {upper.size} bytes is not above that before it, at {lower.size} bytes")
        if self.points[0].size < 1 or self.points[-1].share != 1:
            raise ValueError("the first size has to be above 0 and the last share has to be 1")
        return self


def load_sizes(name: str) -> FlowSizes:
    """Load a distribution of the library, such as ``"websearch"``.

    Raises InputError if there is none of that name, or its file is not a distribution.
    """
    return _read(library.path("traffic", name), f"workloads/traffic/{name}.toml")


def _read(file: Path, label: str) -> FlowSizes:
    tables = plain(parse(read_text(file, label), label))
    try:
        return FlowSizes.model_validate(tables)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        msg = f"{label}: {key + ': ' if key else ''}{first['msg'].removeprefix('Value error, ')}; mend the file"
        raise InputError(msg) from error
