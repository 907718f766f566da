"""How much of its time a job trains while its GPUs fail: checkpoints, lost work, detection, restarts and spares."""

import heapq
import math
import random
from dataclasses import dataclass
from typing import TypedDict

from fabricsim.errors import InputError

_MOST_FAILURES = 10_000_000


@dataclass(frozen=True)
class Reliability:
    """What befalls a job, times in s.

    `gpus`, `mtbf`: GPUs, all of which the job needs, and the mean time between failures of each: they come at a
        constant rate.
    `checkpoint`: time that a checkpoint holds the job up.
    `detection`, `restart`: time until a failure is noticed, and from then until training goes on from the last
        checkpoint.
    `spares`, `repair`: GPUs that stand by (None: enough), and the time after which one that failed is one of them
        again.
    """

    gpus: int
    mtbf: float
    checkpoint: float
    detection: float
    restart: float
    spares: int | None
    repair: float

    @property
    def between(self) -> float:
        """Mean time between failures of the job."""
        return self.mtbf / self.gpus

    def best_interval(self) -> float:
        """Time of training between two checkpoints with which least is lost, s.

        Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), equation
        37: Young's ``sqrt(2 checkpoint between)`` and the next terms of its series.
        """
        ratio = self.checkpoint / (2 * self.between)
        if ratio >= 1:
            return self.between
        young = math.sqrt(2 * self.checkpoint * self.between)
        return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - self.checkpoint

    def expected(self, interval: float) -> float:
        """Goodput in the long run if spares never run out: equation 20 of Daly."""
        mean, lost = self.between, self.detection + self.restart
        try:
            whole = mean * math.exp(lost / mean) * math.expm1((interval + self.checkpoint) / mean)
        except OverflowError:
            return 0.0
        return interval / whole


class Goodput(TypedDict):
    """Where the time of a job goes, s; ``goodput`` is the share of it that trains."""

    goodput: float
    expected: float
    interval_s: float
    failures: int
    training_s: float
    checkpoints_s: float
    lost_work_s: float
    detection_and_restart_s: float
    waiting_for_spares_s: float


def simulate_failures(job: Reliability, interval: float, horizon: float, seed: int) -> Goodput:
    """Have a job's GPUs fail at random, for a time.

    `job`: what befalls it.
    `interval`: time of training between two checkpoints, s.
    `horizon`: length of the whole, s.
    `seed`: of the failures.
    Raises InputError if there would be too many failures.
    """
    if horizon / job.between > _MOST_FAILURES:
        msg = f"{horizon / job.between:.2g} failures are too many to go through: shorten --time, or raise --mtbf"
        raise InputError(msg)
    draw = random.Random(seed)  # noqa: S311  not for secrets
    cycle, lost = interval + job.checkpoint, job.detection + job.restart
    away: list[float] = []  # when GPUs under repair are back
    now = training = checkpoints = work = down = waiting = 0.0
    failures = 0
    while True:
        up = draw.expovariate(1 / job.between)
        if now + up >= horizon:
            break
        whole, rest = divmod(up, cycle)
        training, checkpoints, work = training + whole * interval, checkpoints + whole * job.checkpoint, work + rest
        now += up
        again = True
        while again and now < horizon:
            failures += 1
            wait = min(_wait_for_spare(job, away, now), horizon - now)
            up = draw.expovariate(1 / job.between)
            back = min(up, lost, horizon - now - wait)
            again, waiting, down = up < lost, waiting + wait, down + back
            now += wait + back
    whole, rest = divmod(horizon - now, cycle)
    training, checkpoints = training + whole * interval + min(rest, interval), checkpoints + whole * job.checkpoint
    return {
        "goodput": training / horizon,
        "expected": job.expected(interval),
        "interval_s": interval,
        "failures": failures,
        "training_s": training,
        "checkpoints_s": checkpoints + max(rest - interval, 0.0),
        "lost_work_s": work,
        "detection_and_restart_s": down,
        "waiting_for_spares_s": waiting,
    }


def _wait_for_spare(job: Reliability, away: list[float], now: float) -> float:
    """Take a spare in the place of a GPU that fails now; returns the time that the job waits for it, s."""
    if job.spares is None:
        return 0.0
    while away and away[0] <= now:
        heapq.heappop(away)
    heapq.heappush(away, now + job.repair)
    return max(heapq.nsmallest(len(away) - job.spares, away)[-1] - now, 0.0) if len(away) > job.spares else 0.0
