"""Transformer shapes: parameter tensors of each block, and the blocks of each pipeline stage.

A model is a chain of blocks (embedding, layers, head), each with the sizes of its parameter tensors
in forward order. GPT and BERT layers have biases and layer norms with scale and shift,
``12 h^2 + 13 h`` parameters each (Radford et al. 2019; Devlin et al., arXiv 1810.04805); T5 layers
have neither biases nor shifts, and one table of relative position biases per stack (Raffel et al.,
arXiv 1910.10683). Llama layers have no biases, norms with a scale alone, a feed-forward network of
three matrices (SwiGLU) and key and value heads that several query heads share (Grattafiori et al.,
arXiv 2407.21783). A layer of experts has a router, the experts, and shared experts as one network of
their joint width (Jiang et al., arXiv 2401.04088; Dai et al., arXiv 2401.06066). Latent attention has matrices to
and from a latent vector of queries and one of keys and values, with a norm each (DeepSeek-AI, arXiv 2412.19437).
A layer of Mamba-2 has a matrix to gates, inputs, both vectors of each group and steps of each head, a convolution with
biases, a step's bias, a decay and a skip weight for each head, a norm, and a matrix back (``MambaMixer`` of
NVIDIA/Megatron-LM, megatron/core/ssm/mamba_mixer.py). A module that predicts a further token has two norms and a matrix
that joins two vectors before its layers, and a norm behind them.

The vocabulary is counted as given: Megatron-LM pads it to a multiple of 128 per tensor-parallel rank
(50,257 becomes 50,304), which a user gets by writing the padded number.

Tensor parallelism splits embedding and logits by the vocabulary, attention by heads and feed-forward
networks by their inner width (Shoeybi et al., arXiv 1909.08053). Norms, biases behind a row-parallel
product, position tables, routers and the small heads of BERT are on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from fabricsim.scenario.job import Experts, Latent, Model, Parallelism
from fabricsim.scenario.model import MultiToken, StateSpace
from fabricsim.workload.kinds import BlockKind, Part, layer_kind, parts_of, predicting_layers

WHOLE = Parallelism()
"""One rank that holds everything."""

RELATIVE_BUCKETS = 32
"""Relative distances that T5 tells apart (arXiv 1910.10683, section 2.1)."""

TOKEN_TYPES = 2
"""Segments of a BERT input (arXiv 1810.04805, section 3)."""

_NO_BIASES = ("t5", "llama")


@dataclass(frozen=True)
class Block:
    """A part of a model that is never split over two stages.

    `kind`: what it computes.
    `tensors`: elements that one rank holds of each of its parameter tensors, in forward order, experts apart.
    `experts`: the same of its experts, which only every ``expert``-th data-parallel rank has a copy of.
    `windowed`: whether its attention sees the tokens of the model's window alone.
    `narrow`: whether its products may be narrower than all else.
    """

    kind: BlockKind
    tensors: tuple[int, ...]
    experts: tuple[int, ...] = ()
    windowed: bool = False
    narrow: bool = True

    @property
    def parameters(self) -> int:
        """Number of parameters that one rank holds."""
        return sum(self.tensors) + sum(self.experts)


@dataclass(frozen=True)
class Layout:
    """How the layers of a model lie on the stages of a pipeline.

    `encoder`, `decoder`: layers per stage, shape ``(stages,)``. GPT and BERT layers count as encoder layers.
    `last_encoder`, `first_decoder`: the stages where the encoder of a T5 ends and its decoder begins; ``None`` for GPT
        and BERT.
    """

    encoder: tuple[int, ...]
    decoder: tuple[int, ...]
    last_encoder: int | None = None
    first_decoder: int | None = None

    @property
    def last(self) -> int:
        """The last stage."""
        return len(self.encoder) - 1


def feed_forward(model: Model) -> int:
    """Width of the feed-forward layer."""
    return model.feed_forward if model.feed_forward is not None else 4 * model.hidden


def attention_width(model: Model) -> int:
    """Width of queries, keys and values of all heads together."""
    return model.heads * model.head_width if model.head_width is not None else model.hidden


def key_width(model: Model) -> int:
    """Width of values, and of keys but for their part with positions of a latent attention, of all their heads."""
    return attention_width(model) // model.heads * (model.kv_heads or model.heads)


def key_heads(model: Model, tensor: int = 1) -> int:
    """Heads of keys, and of values, that each of `tensor` ranks attends with: at least one, which several have then."""
    return max((model.kv_heads or model.heads) // tensor, 1)


def rotary_width(model: Model) -> int:
    """Elements that a head of queries and keys has besides those that one of values has, too."""
    return model.latent.rotary if model.latent is not None else 0


def up_projections(model: Model) -> int:
    """Matrices from the hidden to the inner width of a feed-forward network: two with SwiGLU."""
    return 2 if model.family == "llama" and model.activation is None else 1


def experts_of(model: Model) -> Experts:
    """Return the experts of a model that has some. Raises ValueError if it has none."""
    if model.experts is None:
        raise ValueError(f"{model.name} has no experts")
    return model.experts


def expert_width(model: Model) -> int:
    """Inner width of an expert."""
    width = experts_of(model).feed_forward
    return width if width is not None else feed_forward(model)


def routed_width(model: Model) -> int:
    """Width of the vectors that are sent to experts."""
    return experts_of(model).latent or model.hidden


def state_space_of(model: Model) -> StateSpace:
    """Return the numbers of a model's Mamba-2 layers. Raises ValueError if it has none."""
    if model.state_space is None:
        raise ValueError(f"{model.name} has no layers of Mamba-2")
    return model.state_space


def has_window(model: Model, number: int) -> bool:
    """Whether attention of a layer, counted from 0, sees the tokens of the model's window alone."""
    return model.window is not None and (model.full_every is None or (number + 1) % model.full_every != 0)


def decoder_layers(model: Model) -> int:
    """Count the decoder layers: a T5 has as many as encoder layers if it does not say, others none."""
    if model.family != "t5":
        return 0
    return model.decoder_layers if model.decoder_layers is not None else model.layers


def split_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Share out layers evenly; if they do not divide, earlier stages take one more.

    So the last stages, which have the head besides, stay short. If two stay short, these are the first
    and the last, as in Llama 3 405B (arXiv 2407.21783, section 3.3.2).
    """
    share, extra = divmod(layers, stages)
    if stages > 2 and stages - extra == 2:  # noqa: PLR2004  embedding and head
        return (share, *(share + 1,) * extra, share)
    return tuple(share + (stage < extra) for stage in range(stages))


def _share_out(layers: int, stages: int) -> tuple[int, ...]:
    """Share out the layers of a model without decoder, with shorter ends where only that comes out even.

    Embedding and head then count as a layer each, as in Llama 3 (arXiv 2407.21783, section 3.3.2) and with
    Megatron-LM's ``--account-for-embedding-in-pipeline-split`` and ``--account-for-loss-in-pipeline-split``.
    """
    share, extra = divmod(layers + 2, stages)
    if layers % stages == 0 or extra or stages == 1:
        return split_layers(layers, stages)
    return (share - 1, *(share,) * (stages - 2), share - 1)


def layout(model: Model, stages: int) -> Layout:
    """Lay the layers of a model on `stages` pipeline stages.

    The stages of a T5 are divided between encoder and decoder in proportion to their layers, as
    ``--pipeline-model-parallel-split-rank`` of Megatron-LM does by hand. Layers of modules that predict further tokens
    are on the last stage, and count there when layers are shared out, as ``pipeline_model_parallel_layout`` of
    DeepSeek-V3's recipes has it (NVIDIA-NeMo/Megatron-Bridge, recipes/deepseek/deepseek_v3.py).
    """
    decoders = decoder_layers(model)
    if not decoders:
        ahead = model.multi_token.layers if model.multi_token is not None else 0
        *first, last = _share_out(model.layers + ahead, stages)
        return Layout((*first, last - ahead), (0,) * stages)
    if stages == 1:
        return Layout((model.layers,), (decoders,), 0, 0)
    wanted = round(stages * model.layers / (model.layers + decoders))
    split = min(max(wanted, 1, stages - decoders), stages - 1, model.layers)
    encoder = split_layers(model.layers, split) + (0,) * (stages - split)
    decoder = (0,) * split + split_layers(decoders, stages - split)
    return Layout(encoder, decoder, split - 1, split)


def embedding_stages(model: Model, stages: int) -> tuple[int, ...]:
    """Stages that hold a copy of the word embedding, ascending.

    With tied embeddings the last stage has one for its logits; the first decoder stage of a T5 has
    one for its inputs (Megatron-LM's embedding group), and so has the last stage of a model that predicts several
    tokens.
    """
    plan = layout(model, stages)
    holders = {0}
    if plan.first_decoder is not None:
        holders.add(plan.first_decoder)
    if model.tied_embedding or model.multi_token is not None:
        holders.add(plan.last)
    return tuple(sorted(holders))


def stage_blocks(model: Model, stages: int, parallelism: Parallelism = WHOLE) -> tuple[tuple[Block, ...], ...]:
    """Blocks of every pipeline stage, in forward order.

    A stage holds the word embedding at most once, in the first of its blocks that needs it, which
    is the last whose backward pass adds to its gradient.

    `stages`: stages of the pipeline, or chunks of model of an interleaved one.
    `parallelism`: its tensor and expert degrees say what one rank holds; left out, one rank holds everything.
    """
    plan, shapes = layout(model, stages), _Shapes(model, parallelism)
    return tuple(_blocks_of_stage(shapes, plan, stage) for stage in range(stages))


def parameters(model: Model) -> int:
    """Parameters of the whole model, each counted once."""
    return sum(block.parameters for block in stage_blocks(model, 1)[0])


def _blocks_of_stage(shapes: _Shapes, plan: Layout, stage: int) -> tuple[Block, ...]:
    blocks = []
    inputs = False
    if stage == 0:
        blocks.append(Block("embedding", shapes.embedding()))
        inputs = True
    first = sum(plan.encoder[:stage])
    blocks += [
        replace(shapes.of_kind(layer_kind(shapes.model, number)), windowed=has_window(shapes.model, number))
        for number in range(first, first + plan.encoder[stage])
    ]
    if stage == plan.last_encoder:
        blocks.append(Block("encoder-norm", shapes.norm()))
    if stage == plan.first_decoder:
        word = () if inputs else shapes.word()
        blocks.append(Block("decoder-embedding", (*word, RELATIVE_BUCKETS * shapes.model.heads)))
        inputs = True
    blocks += [shapes.decoder_layer()] * plan.decoder[stage]
    if stage == plan.last:
        ahead = shapes.model.multi_token
        if ahead is not None:
            blocks += _predicting(shapes, ahead, () if inputs else shapes.word())
            inputs = True
        own = () if shapes.model.tied_embedding and inputs else shapes.word()
        blocks.append(Block("head", shapes.head() + own))
        blocks += _heads_ahead(shapes, ahead)
    return tuple(blocks)


def _predicting(shapes: _Shapes, ahead: MultiToken, word: tuple[int, ...]) -> Iterator[Block]:
    """Give the modules that predict further tokens, without their heads; the first has the embedding, if need be.

    Of what is repeated the first one has the tensors.
    """
    for number in range(ahead.depth):
        once = ahead.repeated and number > 0
        own = word if number == 0 else ()
        joint = Block("joint", (*own, *shapes.joint()), narrow=ahead.narrow)
        each = (
            joint,
            *(replace(shapes.of_kind(kind), narrow=ahead.narrow) for kind in predicting_layers(shapes.model)),
        )
        for block in each:
            yield replace(block, tensors=(), experts=()) if once else block


def _heads_ahead(shapes: _Shapes, ahead: MultiToken | None) -> Iterator[Block]:
    """Give the heads of further tokens, whose logits are those of the model behind a norm of their own."""
    if ahead is not None:
        for number in range(ahead.depth):
            yield Block("head", () if ahead.repeated and number else shapes.norm())


@dataclass(frozen=True)
class _Shapes:
    """Elements of the tensors of one rank."""

    model: Model
    parallelism: Parallelism

    def word(self) -> tuple[int, ...]:
        return (self.model.vocabulary // self.parallelism.tensor * self.model.hidden,)

    def norm(self) -> tuple[int, ...]:
        return (self.model.hidden,) if self.model.family in _NO_BIASES else (self.model.hidden, self.model.hidden)

    def linear(self, inputs: int, outputs: int) -> tuple[int, ...]:
        """Return a matrix on every rank and its bias."""
        weight = inputs * outputs
        return (weight,) if self.model.family in _NO_BIASES else (weight, outputs)

    def column(self, inputs: int, outputs: int) -> tuple[int, ...]:
        """Return a matrix split by its outputs; its bias is, too."""
        return self.linear(inputs, outputs // self.parallelism.tensor)

    def row(self, inputs: int, outputs: int) -> tuple[int, ...]:
        """Return a matrix split by its inputs; its bias is whole."""
        return self.linear(inputs // self.parallelism.tensor, outputs)

    def embedding(self) -> tuple[int, ...]:
        model = self.model
        tables = {
            "llama": (),
            "t5": (RELATIVE_BUCKETS * model.heads,),
            "gpt": (model.positions * model.hidden,),
            "bert": (model.positions * model.hidden, TOKEN_TYPES * model.hidden),
        }[model.family]
        return self.word() + tables

    def attention(self) -> tuple[int, ...]:
        hidden, width = self.model.hidden, attention_width(self.model)
        if self.model.latent is not None:
            return self.latent_attention(self.model.latent)
        joint = self.column(hidden, width + 2 * key_width(self.model))
        return self.norm() + joint + self.row(width, hidden)

    def latent_attention(self, latent: Latent) -> tuple[int, ...]:
        """Return matrices to the latent vectors, which are on every rank, and those from them, split by heads."""
        hidden, heads, width = self.model.hidden, self.model.heads, attention_width(self.model)
        down = self.linear(hidden, latent.query_rank) + self.linear(hidden, latent.key_rank + latent.rotary)
        up = self.column(latent.query_rank, width + heads * latent.rotary) + self.column(latent.key_rank, 2 * width)
        norms = latent.query_rank, latent.key_rank
        return (*self.norm(), *down, *norms, *up, *self.row(width, hidden))

    def cross_attention(self) -> tuple[int, ...]:
        hidden, width = self.model.hidden, attention_width(self.model)
        return self.norm() + self.column(hidden, width) + self.column(hidden, 2 * width) + self.row(width, hidden)

    def network(self, inner: int, outer: int | None = None) -> tuple[int, ...]:
        """Return a feed-forward network; gate and up projection of a SwiGLU are one matrix."""
        up, outer = up_projections(self.model) * inner, outer or self.model.hidden
        return self.column(outer, up) + self.row(inner, outer)

    def of_kind(self, kind: BlockKind) -> Block:
        """Return a layer of a model without decoder."""
        made = [self.part(part) for part in parts_of(kind)]
        tensors, experts = (tuple(chain.from_iterable(each)) for each in zip(*made, strict=True))
        return Block(kind, tensors, experts)

    def part(self, part: Part) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the tensors of a part with its norm, and those of its experts."""
        if part == "attention":
            return self.attention(), ()
        if part == "mamba":
            return self.mamba(), ()
        if part == "feed-forward":
            return self.norm() + self.network(feed_forward(self.model)), ()
        return self.experts()

    def experts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        experts, hidden = experts_of(self.model), self.model.hidden
        inner = expert_width(self.model)
        router = (hidden * experts.count,)
        shared = self.network(experts.shared * inner) if experts.shared else ()
        latent = (hidden * experts.latent, experts.latent * hidden) if experts.latent else ()
        local = experts.count // self.parallelism.expert
        split = self.parallelism.model_copy(update={"tensor": self.parallelism.expert_parts})
        own = replace(self, parallelism=split).network(inner, routed_width(self.model))
        return self.norm() + router + latent + shared, tuple(local * elements for elements in own)

    def mamba(self) -> tuple[int, ...]:
        hidden, tensor, space = self.model.hidden, self.parallelism.tensor, state_space_of(self.model)
        inner, vectors, heads = (
            each // tensor for each in (space.heads * space.head_width, space.groups * space.state, space.heads)
        )
        mixed = inner + 2 * vectors
        into, back = hidden * (inner + mixed + heads), inner * hidden
        return (*self.norm(), into, mixed * space.convolution, mixed, heads, heads, heads, inner, back)

    def joint(self) -> tuple[int, ...]:
        """Return what a module that predicts a further token begins with: a norm of each vector, and a matrix."""
        return (*self.norm(), *self.norm(), *self.column(2 * self.model.hidden, self.model.hidden))

    def decoder_layer(self) -> Block:
        mlp = self.norm() + self.network(feed_forward(self.model))
        return Block("decoder-layer", self.attention() + self.cross_attention() + mlp)

    def head(self) -> tuple[int, ...]:
        if self.model.family != "bert":
            return self.norm()
        hidden = self.model.hidden
        pooler, next_sentence = self.linear(hidden, hidden), self.linear(hidden, 2)
        transform = self.linear(hidden, hidden) + self.norm()
        bias = (self.model.vocabulary // self.parallelism.tensor,)
        return self.norm() + pooler + next_sentence + transform + bias
