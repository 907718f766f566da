"""What lies between the products of a layer: norms, dropout and residual connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.workload.work import MASK, Pass

if TYPE_CHECKING:
    from fabricsim.workload.tape import Tape


def layer_norm(tape: Tape, elements: int) -> None:
    """Record a layer norm, or an RMS norm, over `elements` of all tensor-parallel ranks."""
    tape.stream("layer norm", tape.own(elements), Pass(1, 1), Pass(2, 1), Pass(2, 0, weight=True), stored=tape.width)


def branch(tape: Tape, elements: int) -> None:
    """Record that a sublayer leaves the residual stream: its gradients of both ways add up."""
    tape.stream("residual", tape.own(elements), None, Pass(2, 1))


def residual(tape: Tape, elements: int) -> None:
    """Record the return to the residual stream, with bias and dropout but for a Llama."""
    if tape.job.model.family == "llama":
        tape.stream("residual", tape.own(elements), Pass(2, 1))
        return
    own = tape.own(elements)
    bias = Pass(1, 0, weight=True)
    tape.stream("bias-dropout-residual", own, Pass(2, 1, MASK), Pass(1, 1, MASK), bias, stored=MASK, kernel="function")
