"""Links that are slow for a time: which of them limits a call, what a cause says of it, and how much it is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fabricsim as fs
from fabricsim.engine.packet.recorder import Watch
from fabricsim.results.causes import causes
from fabricsim.results.columns import FAILURES
from fabricsim.results.result import RunRecord
from fabricsim.results.slowed import rates_left
from fabricsim.results.use_over_time import peaks, use_of_wires
from fabricsim.run.pipeline import load, simulate

BUCKETS = ('job.overlap="ddp"', 'job.bucket="10MB"')
GBPS = 1e9 / 8
RAILS = 'cluster={include="ideal",hosts=4,gpus_per_host=4,nics_per_host=4,intra_host="nvlink",gpu="a100-sxm-80gb"}'
LEAVES = 'fabric={topology="leaf-spine",hosts_per_leaf=2,spines=2,uplink_rate="50Gbps",cables_per_spine=2}'


def _run(*failures: str, settings: tuple[str, ...] = (), hosts: int = 4, engine: str = "flow") -> RunRecord:
    """All-reduce once after all kernels, over a switch of 100 Gb/s."""
    several = ("job.model={include='gpt2-medium',layers=2}", f"cluster.hosts={hosts}", f"engine={engine}")
    job = ("job.micro_batch=1", f"job.global_batch={hosts}", f"job.parallelism={{data={hosts}}}")
    return simulate(load("what-if-ring", [*several, *job, *settings, f"fabric.failures=[{','.join(failures)}]"]))


def _wire(result: RunRecord) -> dict[str, str | None]:
    return next(
        {"resource": row["resource"], "detail": row["detail"]} for row in causes(result) if row["cause"] == "wire"
    )


def _link(result: RunRecord, name: str) -> int:
    return [link.name for link in result.links].index(name)


def test_a_call_is_limited_by_the_link_that_is_slow_while_it_runs() -> None:
    result = _run('{link="host1-*",until="1us",rate="1Gbps"}', '{link="host3-*",from="1us",rate="20Gbps"}')

    assert _wire(result) == {"resource": "host3->switch0", "detail": "host3-* is degraded to 20Gbps"}
    assert result.calls.limits.used == pytest.approx(1, abs=1e-4)


def test_calls_of_one_group_are_limited_each_by_what_is_slow_meanwhile() -> None:
    slow = _run('{link="host1-*",rate="20Gbps"}', settings=BUCKETS)
    change = f'"{int(slow.calls.end[2]) / 1e6}us"'
    failures = f'{{link="host1-*",until={change},rate="20Gbps"}}', f'{{link="host3-*",from={change},rate="20Gbps"}}'
    result = _run(*failures, settings=BUCKETS)

    limits = [result.links[limit].name for limit in result.calls.limits.limit.tolist()]
    assert limits == ["host1->switch0"] * 3 + ["host3->switch0"] * (len(limits) - 3)
    assert result.calls.limits.used == pytest.approx(1, abs=1e-3)
    assert _wire(result)["detail"] == "host1-* is degraded to 20Gbps, host3-* is degraded to 20Gbps"


@pytest.mark.slow
@pytest.mark.parametrize(
    "failure",
    [
        '{link="host0-switch0",rate="10Gbps",until="1us"}',
        '{link="host0-switch0",rate="10Gbps",from="100s"}',
        '{link="host0-switch0",rate="100Gbps"}',
        '{link="host0-switch0",rate="10Gbps",mtbf="1000s",mttr="1ms"}',
    ],
)
def test_a_slowdown_without_effect_is_no_cause_and_changes_no_figure(failure: str) -> None:
    result, intact = _run(failure), _run()

    assert _wire(result)["detail"] == ""
    assert result.iteration == intact.iteration
    assert [link.load / link.capacity for link in result.links] == pytest.approx(
        [link.load / link.capacity for link in intact.links], rel=1e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "failure", "said"),
    [
        ((), '{nic="host0/nic0",rate="10Gbps"}', "host0/nic0 is degraded to 10Gbps"),
        ((), '{nic="host0",rate="10Gbps"}', "host0 is degraded to 10Gbps"),
        ((), '{switch="switch?",rate="10Gbps"}', "switch? is degraded to 10Gbps"),
        ((RAILS, "job.parallelism={data=16}"), '{host="host1",rate="10Gbps"}', "host1 is degraded to 10Gbps"),
        ((LEAVES,), '{link="leaf?-spine*",rate="5Gbps"}', "leaf?-spine* is degraded to 5Gbps"),
    ],
)
def test_a_cause_names_the_slowdown_however_its_part_is_written(
    settings: tuple[str, ...], failure: str, said: str
) -> None:
    parts = settings if any("data=" in each for each in settings) else (*settings, "job.parallelism={data=4}")
    result = simulate(load("what-if-ring", ["cluster.hosts=4", *parts, f"fabric.failures=[{failure}]"]))

    assert _wire(result)["detail"] == said


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_a_saturated_slow_link_is_used_in_full_whether_built_or_degraded(engine: str, tmp_path: Path) -> None:
    matrix = tmp_path / "one.csv"
    matrix.write_text("src,dst,bytes\n0,1,20000000\n")
    shape = ("cluster.hosts=2", f"engine={engine}")
    uses = []
    for slow in (
        'fabric.failures=[{link="switch0->host1",rate="10Gbps"}]',
        'fabric.cables.switch0->host1.rate="10Gbps"',
    ):
        result = fs.traffic(
            str(matrix), "ideal-16", overrides=[*shape, slow], watch=Watch(rates=("*",)) if engine == "packet" else None
        )
        uses.append({row["name"]: row["utilisation"] for row in result.summary()["links"]})
        if result.series is not None:
            assert dict(zip(result.series.names, peaks(result.series), strict=True))["switch0->host1"] == pytest.approx(
                1, rel=0.01
            )

    assert uses[0] == pytest.approx(uses[1], rel=1e-3)
    assert uses[0]["switch0->host1"] == pytest.approx(1, rel=2e-3)
    assert uses[0]["host0->switch0"] == pytest.approx(0.1, rel=2e-3)


def test_use_counts_the_mean_capacity_in_tables_and_what_there_is_at_each_time_in_pictures() -> None:
    intact = _run()
    half = (int(intact.calls.start[0]) + int(intact.calls.end[0])) // 2
    result = _run(f'{{link="host0-switch0",from="{half / 1e6}us",rate="25Gbps"}}')
    slow = _link(result, "host0->switch0")
    left = (half + (result.iteration - half) / 4) / result.iteration

    assert result.links[slow].capacity == pytest.approx(100 * GBPS * left, rel=1e-6)
    assert result.links[_link(result, "host1->switch0")].capacity == 100 * GBPS
    place = result.series.names.index("host0->switch0")
    _, use = use_of_wires(result.series, result.iteration, 240)
    busy = use[place][use[place] > 0]
    assert busy[2:-2] == pytest.approx(1, rel=0.02)  # at 100 Gb/s as at 25 Gb/s


def test_slowdowns_at_one_time_take_the_least_rate_and_none_is_counted_while_a_link_is_down() -> None:
    rows = [(0, 7, 10, 30, 0.5), (1, 7, 20, 40, 0.25), (2, 7, 20, 25, 0.75), (3, 7, 0, 50, 0.0), (4, 8, 0, 9, 0.0)]
    left = rates_left(np.array(rows, FAILURES.record))

    assert list(left) == [7]
    assert left[7].mean(10, 20) == 0.5
    assert left[7].mean(0, 50) == pytest.approx((10 + 10 * 0.5 + 20 * 0.25 + 10) / 50)
    assert left[7].worth(np.array([0, 15]), np.array([10, 25])).tolist() == [10, 2.5 + 1.25]


@pytest.mark.slow
def test_a_file_keeps_what_failed(tmp_path: Path) -> None:
    result = _run('{link="host0-*",rate="10Gbps",from="1ms",until="2s"}', '{link="host1-*",from="1ms",until="2ms"}')
    result.save(tmp_path / "run.h5")  # type: ignore[attr-defined]
    read = fs.read(tmp_path / "run.h5")

    assert np.array_equal(read.failures, result.failures)
    assert read.summary()["causes"] == result.summary()["causes"]  # type: ignore[attr-defined]
    assert np.array_equal(peaks(read.series), peaks(result.series))
