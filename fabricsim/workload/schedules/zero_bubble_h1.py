"""ZB-H1 (Qi et al., arXiv 2401.10241).

With ``t_w`` for the part of ``t_b`` that the gradient of the weights takes, an iteration takes ``m (t_f + t_b)`` and a
bubble of ``(p - 1) (t_f + t_b - 2 t_w)`` (table 2). That holds for ``m >= p`` and if a weight pass is no longer than a
forward pass and no longer than the gradient of the input, ``t_w <= min(t_f, t_b - t_w)``; with fewer micro-batches the
bubble is ``(p - 1) (t_f + t_b - t_w) - (m - 1) t_w``. Each stage stores activations of ``p`` micro-batches, of which
``i`` on stage ``i`` have only their weight pass left, which needs less (section 2.3: ``(p - i) M_B + i M_W``).
"""

from fabricsim.scenario.schedule import Schedule, Step
from fabricsim.workload.schedules import one_forward_one_backward


def steps(stage: int, stages: int, micro_batches: int) -> list[Step]:
    """1F1B whose stage ``i`` lets the weight gradients lag ``i`` micro-batches behind.

    The input gradient goes on to the stage before at once, and the weight gradients left over fill what
    would be the bubble at the end. Forward and backward passes stand in the order of 1F1B.
    """
    lag = min(stage, micro_batches)
    made: list[Step] = []
    for step in one_forward_one_backward.steps(stage, stages, micro_batches):
        made.append(step)
        if step.direction == "backward" and step.micro_batch >= lag:
            made.append(Step("weight", step.micro_batch - lag, 0, step.phase))
    return made + [Step("weight", batch, 0, "cool-down") for batch in range(micro_batches - lag, micro_batches)]


SCHEDULE = Schedule("zb-h1", steps)
