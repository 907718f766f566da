"""GPipe (Huang et al., arXiv 1811.06965).

With ``p`` equal stages, ``m`` micro-batches, passes of ``t_f`` and ``t_b`` and free communication an iteration takes
``m (t_f + t_b)`` and a bubble of ``(p - 1) (t_f + t_b)``. Each stage stores the activations of all micro-batches.
"""

from fabricsim.scenario.schedule import Schedule, Step


def steps(stage: int, stages: int, micro_batches: int) -> list[Step]:
    """All forward passes, then all backward passes from the last micro-batch to the first, on every stage."""
    del stage, stages
    forward = [Step("forward", batch, 0, "warm-up") for batch in range(micro_batches)]
    return forward + [Step("backward", batch, 0, "cool-down") for batch in reversed(range(micro_batches))]


SCHEDULE = Schedule("gpipe", steps)
