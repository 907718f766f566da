"""Exact max-min shares and finish times of another solver, flow by flow.

Each file lists flows on a k-ary fat tree: every link direction carries 12.5e9 bytes/s, no latency,
all flows start at 0, and the route of each is given by the names of its links.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from fabricsim.topology.platform import Platform, ProtocolCosts
from tests.reference import worlds
from tests.reference.scenarios import ideal_scenario

RATE = 12.5e9
FILES = {"ft_k4_F64_lat0.csv": 4, "ft_k8_F1000_lat0.csv": 8}
"""Files, and k of their fat tree."""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=FILES)
def flows(request: pytest.FixtureRequest) -> tuple[int, list[dict[str, str]]]:
    folder = Path(os.environ.get("FABRICSIM_PEERS") or ROOT.parent / "shared" / "peers")
    file = folder / "maxmin" / request.param
    if not file.is_file():
        pytest.skip("results of other simulators are not here: set FABRICSIM_PEERS")
    with file.open(newline="") as lines:
        return FILES[request.param], list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def played(flows: tuple[int, list[dict[str, str]]]) -> tuple[list[float], list[float]]:
    """Initial rate, bytes/s, and finish time, s, of each flow as the engine has them."""
    _, rows = flows
    links: dict[str, int] = {}
    routes = [[links.setdefault(link, len(links)) for link in row["route_links"].split("|")] for row in rows]
    bare = worlds.BareWorld([RATE] * len(links))
    messages = [
        bare.send(bare.route(dict.fromkeys(route, 1.0)), int(row["bytes"]))
        for route, row in zip(routes, rows, strict=True)
    ]
    bare.run(until=0)
    rates = bare.rates()
    bare.run()
    return [rates[message] for message in messages], [bare.finished[message] * 1e-12 for message in messages]


@pytest.mark.slow
def test_shares_agree(flows: tuple[int, list[dict[str, str]]], played: tuple[list[float], list[float]]) -> None:
    assert played[0] == pytest.approx([float(row["initial_rate_Bps"]) for row in flows[1]], rel=1e-6)


@pytest.mark.slow
def test_finish_times_agree(flows: tuple[int, list[dict[str, str]]], played: tuple[list[float], list[float]]) -> None:
    # the files carry nine decimals
    assert played[1] == pytest.approx([float(row["finish_s"]) for row in flows[1]], rel=1e-6, abs=0.51e-9)


def test_the_fat_tree_is_the_same(flows: tuple[int, list[dict[str, str]]]) -> None:
    k, rows = flows
    made = ideal_scenario(k**3 // 4, "fat-tree", k=k)
    costs = ProtocolCosts(wire=1.0, send_copy=0.0, receive_copy=0.0, packet=4096, staged=False)
    platform = Platform(made.cluster, made.fabric, made.switch, RATE, costs, seed=0)
    ours = [len(platform.path(int(row["src"]), int(row["dst"])).hops) for row in rows]
    assert ours == [row["route_links"].count("|") + 1 for row in rows]
