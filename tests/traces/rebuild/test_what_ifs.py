"""Real traces on other fabrics, with other GPUs and other messages: each change goes the way that it must."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from fabricsim.report.text import summary_text
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import summarise
from fabricsim.run import pipeline
from fabricsim.traces.readers import read
from fabricsim.traces.rebuild.programs import Rebuilt, rebuild
from fabricsim.traces.rebuild.sizes import resized
from fabricsim.traces.trace import Trace

NVLINK = ("dgx-a100", None, ("cluster.gpu.nvlink_rate={}GBps", 300))
RDMA = ("pinnacles", "rdma-100g", ("transport.line_rate={}Gbps", 100))
TCP = ("pinnacles", "tcp-10g", ("transport.line_rate={}Gbps", 10))
SAID = "a faster fabric gains at most"
QUICKER = {"rate": 1, "speed": 1, "size": -1}
"""Whether more of it makes a job quicker."""

Fabric = tuple[str, str | None, tuple[str, int]]


@cache
def captured(file: Path) -> Trace:
    return read([file])


@cache
def changed(file: Path, speed: float, size: float) -> Rebuilt:
    """Rebuild a captured job, whatever fabric it then runs on."""
    return rebuild(captured(file), gpu_speed=speed, message_size=size)


class Job:
    """A captured job on a fabric."""

    def __init__(self, file: Path, fabric: Fabric) -> None:
        self.file, self.fabric = file, fabric

    def replayed(self, *, rate: float = 1, speed: float = 1, size: float = 1) -> RunRecord:
        name, transport, (key, usual) = self.fabric
        settings = [key.format(usual * rate)] + ["cluster.gpus_per_host=1"] * (name == "pinnacles")
        rebuilt = changed(self.file, speed, size)
        loaded = pipeline.load_fabric(name, rebuilt.program.ranks, transport, settings)
        return pipeline.replay(loaded, rebuilt, captured(self.file).form)


def steps(result: RunRecord) -> int:
    """All steps of all ranks together, ps."""
    assert result.capture is not None
    return sum(step.replayed for step in result.capture.steps)


def transfers(result: RunRecord) -> int:
    """All transfers together, ps."""
    assert result.capture is not None
    return sum(transfer.replayed for transfer in result.capture.transfers)


def host_rules(result: RunRecord) -> bool:
    """Whether the text says that the host alone decides how long it takes."""
    console = Console(width=200)
    with console.capture() as printed:
        console.print(summary_text(summarise(result)))
    return SAID in printed.get()


@pytest.mark.slow
@pytest.mark.parametrize("fabric", [NVLINK, RDMA, TCP], ids=["nvlink", "rdma", "tcp"])
@pytest.mark.parametrize("name", ["dlrm_kineto.tar.gz", "nccl_parser_config_nccl_data.json.gz"])
def test_each_change_goes_the_way_that_it_must(traces: Path, name: str, fabric: Fabric) -> None:
    job = Job(traces / "kineto" / name, fabric)
    base = job.replayed()
    for what, way in QUICKER.items():
        for times in (2, 0.5):
            other = job.replayed(**{what: times})
            slower = -way if times > 1 else way
            change = slower * (steps(other) - steps(base))
            assert change >= 0, (what, times, change)
            assert change or host_rules(base) or host_rules(other), (what, times)
            if what != "speed":
                assert slower * (transfers(other) - transfers(base)) > 0, (what, times)


def test_all_kineto_traces_are_tried(traces: Path) -> None:
    assert len(list((traces / "kineto").iterdir())) == 2


@pytest.mark.slow
def test_a_trace_of_its_own_sizes_is_as_it_was(traces: Path) -> None:
    trace = read([traces / "kineto" / "dlrm_kineto.tar.gz"])
    assert resized(trace, 1) is trace
    twice, thrice = (rebuild(trace, message_size=times).program.calls for times in (1.0, 3.0))
    assert [3 * call.size for call in twice] == [call.size for call in thrice]
