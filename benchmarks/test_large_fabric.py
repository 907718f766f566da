"""65,536 GPUs on a rail-optimised network of three tiers: what it takes to build it, and to run an iteration on it.

Each runs in a process of its own, which tells its CPU time and most memory. Measured on two cores of a cloud machine
that were shared with other work, Python and imports included: 7 to 9 s and 0.6 GB to build it with all routes of the
job's groups; 45 to 49 s and 0.8 GB for the iteration, of which 1,024 ranks stand for all. What takes too long is tried
again: a core takes up to 1.7 times as long while something else is on its other thread.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCENARIO = Path(__file__).with_name("gpt-1t-65k.toml")
_BEGIN = """
import gc
gc.set_threshold(50_000, 20, 20) # as the command line does
"""
_USED = """
import json, resource
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, found]))
"""
_BUILD = """
import simpy
import fabricsim as fs
from fabricsim.engine.folding.fold import footprint_of
from fabricsim.run.pipeline import build_plan
loaded = fs.load({scenario!r})
fabric = fs.Fabric(simpy.Environment(), loaded)
found = len(footprint_of(fabric, build_plan(loaded)).routes.code)
"""
_RUN = """
import fabricsim as fs
found = fs.simulate(fs.load({scenario!r})).iteration
"""


TRIES = 3


def _measured(code: str, bound: float) -> tuple[float, float, int]:
    """Run code in a process of its own until it takes less CPU seconds than `bound`, or the last try is over."""
    for _ in range(TRIES):
        found = _once(code)
        if found[0] < bound:
            break
    return found


def _once(code: str) -> tuple[float, float, int]:
    text = _BEGIN + code.format(scenario=str(SCENARIO)) + _USED
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1500)  # noqa: S603  our own text
    seconds, memory, found = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), float(memory), int(found)


def test_routes_of_a_job_on_65536_gpus() -> None:
    seconds, memory, routes = _measured(_BUILD, 10)
    assert routes > 65_536
    assert seconds < 10
    assert memory < 2 * 2**30


def test_an_iteration_of_a_1t_model_on_65536_gpus() -> None:
    seconds, memory, iteration = _measured(_RUN, 120)
    # 6 x 1.008e12 parameters x 4,096 x 2,048 tokens on 65,536 GPUs of 989 TFLOP/s: 0.78 s if nothing were lost
    assert 0.78e12 < iteration < 10e12
    assert seconds < 120
    assert memory < 2 * 2**30
