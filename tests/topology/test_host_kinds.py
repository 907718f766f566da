"""Hosts of several kinds in one cluster."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import simpy

import fabricsim as fs
from fabricsim.engine.fabric import Fabric
from fabricsim.errors import ScenarioError
from fabricsim.scenario.load import from_tables, load

OLD = 'cluster.kinds={old={hosts="4-7", transport="ipoib-100g"}}'
SMALL = ["job.model.layers=1", "job.micro_batch=1", "job.global_batch=8"]


def _fabric(*settings: str) -> Fabric:
    return Fabric(simpy.Environment(), load("gpt2-medium-dp", settings, with_job=False))


def test_kinds_that_change_nothing_leave_all_as_it_is() -> None:
    plain = fs.simulate("gpt2-medium-dp", overrides=SMALL)
    same = fs.simulate("gpt2-medium-dp", overrides=[*SMALL, 'cluster.kinds={same={hosts="2-5", gpu="a100-pcie-40gb"}}'])

    assert np.array_equal(plain.spans, same.spans)
    assert plain.links == same.links


def test_two_hosts_speak_what_both_have() -> None:
    """Between two RDMA hosts a path is that of RDMA; if either has none, that of IPoIB, both ways."""
    rdma, sockets, mixed = (_fabric(*some).platform for some in ([], ["transport=ipoib-100g"], [OLD]))

    for source, target in product((0, 5), (1, 6)):
        expected = sockets if max(source, target) >= 4 else rdma
        assert mixed.path(source, target).hops == expected.path(source, target).hops


def test_a_message_takes_the_time_of_its_transport() -> None:
    def time(fabric: Fabric, source: int, target: int) -> float:
        return float(fabric.env.run(fabric.send(source, target, 2**20)))

    assert time(_fabric(OLD), 0, 1) == time(_fabric(), 0, 1)
    assert time(_fabric(OLD), 0, 4) == time(_fabric("transport=ipoib-100g"), 0, 4)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_all_hosts_of_another_kind_are_a_cluster_of_that_kind(engine: str) -> None:
    changed = ["cluster.gpu=v100-sxm2-16gb", "cluster.gpudirect=false", "cluster.nic.pcie.generation=3"]
    kind = 'hosts="0-7", gpu="v100-sxm2-16gb", gpudirect=false, nic={include="connectx-6-hdr100", pcie={generation=3}}'
    one = fs.simulate("gpt2-medium-dp", overrides=[*SMALL, f"engine={engine}", *changed])
    other = fs.simulate("gpt2-medium-dp", overrides=[*SMALL, f"engine={engine}", f"cluster.kinds={{all={{{kind}}}}}"])

    assert np.array_equal(one.spans, other.spans)


def test_a_kind_may_include_a_cluster_and_is_resolved_with_it() -> None:
    setting = 'cluster.kinds={old={include="v100-vm", hosts="4-7", transport="ipoib-100g"}}'
    loaded = load("gpt2-medium-dp", [setting])
    gpus = [variant.gpu.name for variant in loaded.scenario.cluster.variants]

    assert "v100" in gpus[1]
    assert "a100" in gpus[0]
    assert loaded.scenario.cluster.kind_of_host == [0, 0, 0, 0, 1, 1, 1, 1]
    assert from_tables(loaded.resolved) == loaded.scenario


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('hosts="6-8", gpu="t4"', "cluster.kinds.old.hosts: names host 8, and there are 0 to 7"),
        ('hosts="6"', "cluster.kinds.old: changes nothing"),
        ('hosts="6", gpu="t4", gpus_per_host=2', "cluster.kinds.old.gpus_per_host: is 2, and other hosts have 1"),
        ('hosts="6", gpu="t5"', "there is no 't5' in workloads/gpus"),
        ('hosts="6", transport="rdma-200g"', "cluster.kinds: hosts speak rdma-100g and rdma-200g"),
        ('hosts="6", intra_host="nvlink", gpu="t4"', "cluster.kinds.old.intra_host: the GPU"),
        ('hosts="6", gpus="t4"', "did you mean"),
    ],
)
def test_a_slip_in_kinds_is_named_with_its_key(keys: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        load("gpt2-medium-dp", [f"cluster.kinds={{old={{{keys}}}}}"])


def test_the_packet_engine_refuses_a_second_transport() -> None:
    with pytest.raises(ScenarioError, match="the packet engine takes one for all"):
        load("gpt2-medium-dp", ["engine=packet", OLD])
