"""What lies between the products of a layer: norms, dropout and residual connections."""

from fabricsim.workload.tape import Tape, layouts_of
from fabricsim.workload.work import MASK, Operation, Pass


def layer_norm(tape: Tape, elements: int, *, turns: bool = False) -> None:
    """Record a layer norm, or an RMS norm, over `elements` of all tensor-parallel ranks.

    `turns`: whether a product follows whose factor it writes, if its scale is known (`Tape.norm_turns`); if need be
        that is transposed afterwards.
    """
    own = tape.own(elements)
    back = Pass(2, 1), Pass(2, 0, weight=True)
    if turns and tape.norm_turns:
        written, transposed = layouts_of(own, "fp8", tape.layouts)
        tape.step([Operation("layer norm", 0, own * tape.width + written, transposed=2 * transposed)], [])
        tape.stream("layer norm", own, None, *back, stored=tape.width)
    else:
        tape.stream("layer norm", own, Pass(1, 1), *back, stored=tape.width)


def branch(tape: Tape, elements: int) -> None:
    """Record that a sublayer leaves the residual stream: its gradients of both ways add up."""
    tape.stream("residual", tape.own(elements), None, Pass(2, 1))


def residual(tape: Tape, elements: int) -> None:
    """Record the return to the residual stream, with bias and dropout but for a Llama."""
    own = tape.own(elements)
    if tape.job.model.family == "llama":
        tape.stream("residual", own, Pass(2, 1))
        return
    bias = Pass(1, 0, weight=True)
    if not tape.job.dropout:
        tape.stream("bias-residual", own, Pass(2, 1), bias)
        return
    tape.stream("bias-dropout-residual", own, Pass(2, 1, MASK), Pass(1, 1, MASK), bias, stored=MASK, kernel="function")
