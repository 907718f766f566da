"""1F1B, or PipeDream-flush (Narayanan et al., arXiv 2104.04473, section 2.2.1), as Megatron-LM runs it.

With ``p`` equal stages, ``m`` micro-batches, passes of ``t_f`` and ``t_b`` and free communication an iteration takes
``m (t_f + t_b)`` and a bubble of ``(p - 1) (t_f + t_b)``. Stage ``i`` stores activations of ``p - i`` micro-batches.
With several chunks per stage it is `fabricsim.workload.schedules.interleaved`.
"""

from fabricsim.scenario.schedule import Schedule, Step
from fabricsim.workload.schedules import interleaved


def steps(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Step]:
    """Forward passes to warm up, then forward and backward by turns, then the backward passes that are still owed.

    Stage ``i`` of ``p`` warms up with ``p - i - 1`` passes, interleaved with more.
    """
    single = chunks == 1
    wanted = stages - stage - 1 if single else interleaved.warm_up(stage, stages, chunks)
    forward = (
        [(batch, 0) for batch in range(micro_batches)] if single else interleaved.order(stages, micro_batches, chunks)
    )
    backward = [(batch, chunks - chunk - 1) for batch, chunk in forward]
    first = min(wanted, len(forward))
    made = [Step("forward", *each, "warm-up") for each in forward[:first]]
    for there, back in zip(forward[first:], backward, strict=False):
        made += [Step("forward", *there, "steady"), Step("backward", *back, "steady")]
    return made + [Step("backward", *each, "cool-down") for each in backward[len(forward) - first :]]


SCHEDULE = Schedule("1f1b", steps, interleaves=True)
