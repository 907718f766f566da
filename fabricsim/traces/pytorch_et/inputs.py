"""What an execution trace says of the inputs of operators, for a Kineto trace that was captured at the same time."""

from collections.abc import Callable
from typing import NamedTuple

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source
from fabricsim.traces.kineto.inputs import Inputs, made
from fabricsim.traces.pytorch_et.reader import nodes_of, rank_of_name

_MOST = 2**22  # calls of operators that matter, of the largest trace
_LONGEST = 64
_TENSOR = "Tensor("


class ToldInputs(NamedTuple):
    """Inputs of one rank.

    `rank`: as its name says; NONE if it does not.
    `inputs`: name and inputs of an operator by the ``rf_id`` of its call.
    """

    source: str
    rank: int
    inputs: dict[int, tuple[str, Inputs]]


def read_inputs(source: Source, operators: Callable[[str], bool]) -> ToldInputs:
    """Read a file.

    `operators`: whether operators of a name matter.
    Raises TraceError if it cannot be read.
    """
    found: dict[int, tuple[str, Inputs]] = {}
    for node in nodes_of(source):
        record = node.record if operators(node.name) else None
        if record is not None:
            types = [each.removeprefix(_TENSOR).removesuffix(")") for each in node.types]
            values = ["" if isinstance(value, list) else str(value)[:_LONGEST] for value in node.arguments]
            found[record] = node.name, made(node.shapes, types, values)
        if len(found) > _MOST:
            raise TraceError(source.label, f"has more than {_MOST} calls of operators; capture fewer iterations")
    return ToldInputs(source.label, rank_of_name(source.name), found)
