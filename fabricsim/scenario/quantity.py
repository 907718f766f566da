"""Field types of the scenario models: a string with a unit in, a number in the base unit out."""

from functools import partial
from typing import Annotated

from pydantic import BeforeValidator

from fabricsim import units

Bytes = Annotated[int, BeforeValidator(partial(units.parse, dimension=units.BYTES))]
"""Bytes."""
Duration = Annotated[int, BeforeValidator(partial(units.parse, dimension=units.DURATION))]
"""Picoseconds."""
Rate = Annotated[float, BeforeValidator(partial(units.parse, dimension=units.RATE))]
"""Bytes per second."""
TimePerByte = Annotated[float, BeforeValidator(partial(units.parse, dimension=units.TIME_PER_BYTE))]
"""Seconds per byte."""
Flops = Annotated[float, BeforeValidator(partial(units.parse, dimension=units.FLOPS))]
"""FLOP per second."""
Length = Annotated[float, BeforeValidator(partial(units.parse, dimension=units.LENGTH))]
"""Metres."""
