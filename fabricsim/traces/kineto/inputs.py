"""What an operator was called with, as PyTorch's profiler notes it where ``record_shapes`` is on.

``"Input Dims"`` and ``"Input type"`` are there from PyTorch 1.8 on, ``"Concrete Inputs"`` from 2.1 on
(``torch/csrc/profiler/util.cpp`` and ``collection.cpp`` of github.com/pytorch/pytorch). If an execution trace was
captured at the same time, ``"Record function id"`` is the ``rf_id`` of its node.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fabricsim.records.program import NONE

_MOST_ARGUMENTS = 64
_MOST_DIMENSIONS = 16
_MOST_LENGTH = 2**40
_MOST_TEXT = 64
_MOST_RECORD = 2**63


class Inputs(NamedTuple):
    """Arguments of an operator, in the order of its schema.

    `shapes`: dimensions of each; empty of what is no tensor, of a number, and of a list of tensors.
    `types`: such as ``"c10::BFloat16"``; empty if there is none.
    `values`: of what is no tensor, such as ``"True"``; empty of tensors, and all of it if not captured.
    `record`: if none of them is captured, the node of the execution trace that has them; else NONE.
    """

    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    values: tuple[str, ...]
    record: int = NONE

    def shape(self, place: int) -> tuple[int, ...]:
        """Dimensions of an argument; empty if it has none."""
        return self.shapes[place] if place < len(self.shapes) else ()

    def type(self, place: int) -> str:
        """Type of an argument; empty if not known."""
        return self.types[place] if place < len(self.types) else ""

    def value(self, place: int) -> str:
        """Value of an argument; empty if not known."""
        return self.values[place] if place < len(self.values) else ""


def inputs_of(arguments: Mapping[str, object]) -> Inputs | None:
    """Read what an event says of the inputs of its operator; None if it says neither shapes nor if they are."""
    shapes, types, values = (arguments.get(key) for key in ("Input Dims", "Input type", "Concrete Inputs"))
    if not isinstance(shapes, list):
        record = arguments.get("Record function id")
        return Inputs((), (), (), record) if type(record) is int and 0 < record < _MOST_RECORD else None
    return made(shapes, types, values)


def made(shapes: list[Any], types: object, values: object) -> Inputs:
    """Make inputs of lists that nobody has vouched for."""
    return Inputs(tuple(map(_dimensions, shapes[:_MOST_ARGUMENTS])), _texts(types), _texts(values))


def _dimensions(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        return ()
    good = all(type(length) is int and 0 <= length < _MOST_LENGTH for length in shape)
    return tuple(shape) if good else ()


def _texts(listed: object) -> tuple[str, ...]:
    if not isinstance(listed, list):
        return ()
    return tuple(text[:_MOST_TEXT] if isinstance(text, str) else "" for text in listed[:_MOST_ARGUMENTS])
