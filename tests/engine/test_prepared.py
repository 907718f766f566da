"""What a run says about the ranks that it has simulated."""

from __future__ import annotations

import pytest

from fabricsim.errors import InputError
from fabricsim.results.summary import summarise
from fabricsim.run.pipeline import load, simulate

SMALL = ["job.model.layers=2", "job.global_batch=16", "cluster.hosts=2", "job.parallelism.data=2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how", "fewer"),
    [
        ("gpt2-medium-dp", "close", []),
        ("gpt2-xl-dp-16", "close", []),
        ("megatron-a100", "on", []),
        # a quarter of its replicas, each as it ships: all ranks of all of them take eight seconds
        ("megatron-vtrain", "close", ["cluster.hosts=8", "job.parallelism.data=8", "job.global_batch=256"]),
    ],
)
def test_a_folded_run_of_a_shipped_scenario_is_as_far_from_that_of_all_ranks_as_its_note_says(
    name: str, how: str, fewer: list[str]
) -> None:
    folded = simulate(load(name, [f"folding={how}", *fewer]))
    whole = simulate(load(name, ["folding=off", *fewer]))

    (note,) = (said for said in folded.notes if "simulated" in said)
    assert folded.ranks is not None
    assert f"of {folded.ranks} ranks simulated" in note
    if "exact" in note:
        assert folded.iteration == whole.iteration
    else:
        assert "by less than 0.01 % in shipped scenarios" in note
        assert folded.iteration == pytest.approx(whole.iteration, rel=1e-4)
    assert not any("simulated" in note for note in whole.notes)


@pytest.mark.slow
def test_starts_of_messages_add_up_in_a_pipeline_of_small_layers() -> None:
    settings = [
        *("cluster=hkbu", "transport=tcp-10g", "collectives=nccl", "cluster.hosts=2", "cluster.gpus_per_host=4"),
        "fabric={topology='leaf-spine', hosts_per_leaf=1, spines=2}",
        *("job.model.layers=8", "job.model.hidden=512", "job.model.heads=16", "job.model.vocabulary=2048"),
        *("job.parallelism={pipeline=4, data=2}", "job.micro_batch=1", "job.global_batch=16", "job.sequence=512"),
        *("job.schedule=zb-h1", "job.launch=graph", "job.recompute=selective", "job.gradient_precision=fp16"),
    ]
    close, whole = (simulate(load("bert-large-dp", [*settings, f"folding={how}"])) for how in ("close", "off"))

    assert "1.3 % in a pipeline of small layers over sockets" in close.notes[-1]
    assert close.iteration / whole.iteration - 1 == pytest.approx(0.013, abs=0.0005)


def test_folding_that_cannot_be_exact_is_refused() -> None:
    with pytest.raises(InputError, match=r"read ahead.*close.*up to 5\.4.* us sooner or later"):
        simulate(load("gpt2-medium-dp", [*SMALL, "folding=on"]))


@pytest.mark.slow
def test_an_automatic_run_of_many_ranks_says_why_none_was_folded() -> None:
    many = ["job.model.layers=1", "cluster.hosts=128", "job.parallelism.data=128", "job.global_batch=1024"]
    note = simulate(load("gpt2-medium-dp", many)).notes[-1]

    assert note.startswith("each of the 128 ranks simulated: adapters of rdma-100g read ahead")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["folding=close", "job.parallelism.pipeline=2", "job.parallelism.data=1"], "no two are alike"),
        (["folding=on", "engine=packet"], 'folding = "on" has no effect: the packet engine simulates each rank'),
    ],
)
def test_a_setting_without_effect_is_said(settings: list[str], said: str) -> None:
    result = simulate(load("gpt2-medium-dp", [*SMALL, *settings]))

    assert [said in note for note in summarise(result)["notes"]].count(True) == 1
