from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.scenario.job import Model, Parallelism
from fabricsim.scenario.library import root
from fabricsim.workload.shapes import embedding_stages, layout, parameters, split_layers, stage_blocks
from tests.reference.jobs import make_model

_WHOLE = ("embedding", "head")
"""Blocks with matrices that every tensor-parallel rank has: position tables, and BERT's pooler and transform."""

PUBLISHED = {
    # Exact counts of the published checkpoints, with all heads that were trained.
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    # The published weights of each; Mixtral is said to have 46.7 billion.
    "llama3-8b": 8_030_261_248,
    "mixtral-8x7b": 46_702_792_704,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_model(name: str) -> None:
    assert parameters(make_model(name)) == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("gpt3-175b", 174.6e9),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
        ("mixtral-8x22b", 140_630_071_296),
        ("deepseek-moe-16b", 16_375_728_128),
        ("deepseek-v2", 236e9),
        ("deepseek-v3", 671e9),
        ("llama4-maverick", 400e9),
        ("megatron-22b", 22e9),
        ("megatron-175b", 175e9),
        ("megatron-530b", 529.6e9),
        ("megatron-1t", 1008e9),
    ],
)
def test_presets_have_the_parameters_of_their_name(name: str, published: float) -> None:
    model = Model.model_validate(tomllib.loads((root() / "models" / f"{name}.toml").read_text()))

    assert parameters(model) == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize(("name", "published"), [("kimi-k2", 1.04e12), ("llama4-scout", 109e9)])
def test_presets_that_leave_something_out(name: str, published: float) -> None:
    """Scout's encoder of images, and 1.3 % of Kimi K2 that its shape does not explain."""
    model = Model.model_validate(tomllib.loads((root() / "models" / f"{name}.toml").read_text()))

    assert 0.985 * published < parameters(model) < published


@given(
    name=st.sampled_from(sorted(PUBLISHED)),
    tensor=st.sampled_from([1, 2, 4]),
    expert=st.sampled_from([1, 2, 4, 8]),
)
def test_ranks_hold_the_model_and_copies_of_what_is_small(name: str, tensor: int, expert: int) -> None:
    model = make_model(name, vocabulary=30720)
    ranks = Parallelism(tensor=tensor, data=expert, expert=expert)
    blocks, whole = stage_blocks(model, 1, ranks)[0], stage_blocks(model, 1)[0]

    for own, full in zip(blocks, whole, strict=True):
        assert sum(own.experts) * tensor * expert == sum(full.experts)
        copied = [tensor * a - b for a, b in zip(own.tensors, full.tensors, strict=True)]
        assert all(extra in {0, (tensor - 1) * b} for extra, b in zip(copied, full.tensors, strict=True))
        matrices = [extra for extra, b in zip(copied, full.tensors, strict=True) if b >= model.hidden**2]
        assert full.kind in _WHOLE or not any(matrices)


@pytest.mark.parametrize("name", ["gpt2-medium", "gpt2-large", "gpt2-xl"])
def test_gpt_has_the_closed_form(name: str) -> None:
    model = make_model(name)
    h, layers = model.hidden, model.layers

    total = layers * (12 * h**2 + 13 * h) + (model.vocabulary + model.positions) * h + 2 * h

    assert parameters(model) == total


def test_megatrons_padded_vocabulary_adds_its_rows() -> None:
    padded = make_model("gpt2-medium", vocabulary=50304)

    assert parameters(padded) == PUBLISHED["gpt2-medium"] + 47 * 1024


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("tied", [True, False])
def test_stages_hold_the_model_and_the_embedding_copies(name: str, stages: int, *, tied: bool) -> None:
    model = make_model(name, tied_embedding=tied)
    held = sum(block.parameters for blocks in stage_blocks(model, stages) for block in blocks)

    copies = len(embedding_stages(model, stages)) - 1

    assert held == parameters(model) + copies * model.vocabulary * model.hidden


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("stages", [1, 2, 3, 5, 8])
def test_each_stage_holds_the_word_embedding_exactly_where_the_group_says(name: str, stages: int) -> None:
    model = make_model(name, tied_embedding=True)

    counts = [
        sum(block.tensors.count(model.vocabulary * model.hidden) for block in blocks)
        for blocks in stage_blocks(model, stages)
    ]

    assert counts == [int(stage in embedding_stages(model, stages)) for stage in range(stages)]


def test_an_untied_output_matrix_comes_on_top() -> None:
    tied, untied = make_model("gpt2-medium"), make_model("gpt2-medium", tied_embedding=False)

    assert parameters(untied) - parameters(tied) == tied.vocabulary * tied.hidden
    assert embedding_stages(untied, 4) == (0,)


@pytest.mark.parametrize(("stages", "holders"), [(1, (0,)), (2, (0, 1)), (4, (0, 2, 3)), (8, (0, 4, 7))])
def test_embedding_group_of_t5_has_the_first_decoder_stage(stages: int, holders: tuple[int, ...]) -> None:
    assert embedding_stages(make_model("t5-base"), stages) == holders


def test_t5_without_decoder_layers_has_as_many_as_encoder_layers() -> None:
    assert layout(make_model("t5-base", decoder_layers=None), 1).decoder == (12,)
    assert layout(make_model("t5-base", decoder_layers=6), 3).decoder == (0, 0, 6)


@given(layers=st.integers(1, 200), stages=st.integers(1, 64))
def test_layers_are_shared_out_evenly(layers: int, stages: int) -> None:
    shares = split_layers(layers, stages)

    assert sum(shares) == layers
    assert max(shares) - min(shares) <= 1
    assert shares[-1] == min(shares)
    assert max(shares) in shares[:2]


def test_first_and_last_stage_of_llama3_405b_have_a_layer_less() -> None:
    assert split_layers(126, 16) == (7, *(8,) * 14, 7)
    assert split_layers(127, 16) == (*(8,) * 15, 7)


@given(encoder=st.integers(1, 30), decoder=st.integers(1, 30), data=st.data())
def test_each_stage_of_a_t5_has_layers_of_one_kind(encoder: int, decoder: int, data: st.DataObject) -> None:
    stages = data.draw(st.integers(2, max(2, encoder + decoder)))
    plan = layout(make_model("t5-base", layers=encoder, decoder_layers=decoder), stages)

    assert (sum(plan.encoder), sum(plan.decoder)) == (encoder, decoder)
    assert all((a > 0) != (b > 0) for a, b in zip(plan.encoder, plan.decoder, strict=True))
