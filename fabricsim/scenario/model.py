"""Transformers by their numbers."""

from typing import Annotated, Literal

from pydantic import Field

from fabricsim.scenario.base import Spec

YEARS = {"bert": 2018, "gpt": 2019, "t5": 2019, "llama": 2023}
"""Year of the first model of each family: Devlin et al., Radford et al., Raffel et al., Touvron et al."""

Positive = Annotated[int, Field(ge=1, lt=2**31)]


class Experts(Spec):
    """The mixture of experts that takes the place of a layer's feed-forward network.

    A router sends each token to ``per_token`` of ``count`` experts of inner width ``feed_forward``
    (that of the model if it is left out), and every token goes through ``shared`` more of that
    width. The first ``dense_layers`` layers have the model's plain feed-forward network, and so have all but every
    ``every``-th layer. With ``clamped`` each expert has biases, and limits of what its activation takes (gpt-oss).
    ``router_precision`` is that of scores, that of the job if left out. With ``latent`` tokens are made vectors of this
    width before they are sent to experts, and what comes back is made as wide as the model (NVIDIA, Nemotron 3,
    arXiv 2512.20856); shared experts see them whole.
    """

    count: Positive
    per_token: Positive = 2
    feed_forward: Positive | None = None
    shared: Annotated[int, Field(ge=0, lt=2**31)] = 0
    dense_layers: Annotated[int, Field(ge=0, lt=2**31)] = 0
    every: Positive = 1
    clamped: bool = False
    router_precision: Literal["fp32", "bf16"] | None = None
    latent: Positive | None = None


class StateSpace(Spec):
    """Layers of Mamba-2 (Dao and Gu, arXiv 2405.21060, section 7), as in NVIDIA's Nemotron-H (arXiv 2504.03624).

    Each of ``heads`` of ``head_width`` elements has a matrix of so many rows and ``state`` columns that every token
    changes and reads, with vectors that the heads of a group share (``groups``). A convolution over ``convolution``
    tokens comes before it. It is computed in chunks of ``chunk`` tokens (``chunk_size`` of mamba_ssm).
    """

    heads: Positive
    head_width: Positive
    state: Positive
    groups: Positive = 1
    convolution: Positive = 4
    chunk: Positive = 256


Pattern = Annotated[str, Field(pattern=r"^[M*E-]+$")]
"""Kinds of layers, one character each: ``M`` of Mamba-2, ``*`` attention, ``-`` feed-forward network, ``E`` experts."""


class MultiToken(Spec):
    """Multi-token prediction (DeepSeek-AI, arXiv 2412.19437, section 2.2).

    ``depth`` tokens behind the next one are predicted as well. For each a module joins what comes of all layers, or of
    the module before, with the embedding of a token, and has a layer like the last one of the model, or those of
    ``pattern``; logits are those of the model. With ``repeated`` all modules are one (``mtp_use_repeated_layer`` of
    Megatron-LM). Without ``narrow`` their products stay in the precision of the job (``keep_mtp_spec_in_bf16``).
    """

    depth: Annotated[int, Field(ge=1, le=100)] = 1
    pattern: Pattern | None = None
    repeated: bool = False
    narrow: bool = True

    @property
    def layers(self) -> int:
        """Layers of all modules, which are on the last stage of a pipeline."""
        return self.depth * len(self.pattern or "-")


class Latent(Spec):
    """Multi-head latent attention (DeepSeek-AI, arXiv 2412.19437, section 2.1.1).

    Queries are made of a latent vector of width ``query_rank`` for each token, keys and values of one of width
    ``key_rank``. A head of queries and keys has ``rotary`` elements with positions besides ``head_width`` without;
    those of keys are the same for all heads. Values have ``head_width``.
    """

    query_rank: Positive
    key_rank: Positive
    rotary: Positive


class Model(Spec):
    """A transformer by its numbers.

    ``layers`` counts encoder layers of a ``t5``, which has ``decoder_layers`` besides;
    ``feed_forward`` defaults to ``4 * hidden`` and ``head_width`` to ``hidden / heads``. A ``llama`` has
    RMS norms, rotary positions, SwiGLU and no biases; with ``kv_heads`` below ``heads`` several query
    heads share a key and value head; with ``latent`` keys and values come of a latent vector; with ``head_norm`` each
    head of queries and keys has an RMS norm; with ``yarn`` a factor scales positions. With ``window`` a token attends
    to itself and those before it, so many together, in all layers but every ``full_every``-th (gpt-oss). ``activation``
    is that of the family if left out; a squared ReLU has one matrix inwards.

    With ``pattern`` a layer is attention, a feed-forward network, experts or Mamba-2 (``state_space``) by itself, as
    ``hybrid_layer_pattern`` of Megatron-LM says it; such models have no rotary positions. ``multi_token`` adds modules
    that predict further tokens. ``year`` says what was usual when the model was trained, see
    `fabricsim.scenario.job.Job`; it defaults to that of the family (`YEARS`).
    """

    name: str
    family: Literal["gpt", "bert", "t5", "llama"]
    layers: Positive
    hidden: Positive
    heads: Positive
    vocabulary: Positive
    positions: Positive
    decoder_layers: Positive | None = None
    feed_forward: Positive | None = None
    head_width: Positive | None = None
    kv_heads: Positive | None = None
    tied_embedding: bool = True
    experts: Experts | None = None
    latent: Latent | None = None
    head_norm: bool = False
    yarn: bool = False
    window: Positive | None = None
    full_every: Positive | None = None
    activation: Literal["squared-relu"] | None = None
    pattern: Pattern | None = None
    state_space: StateSpace | None = None
    multi_token: MultiToken | None = None
    year: Annotated[int, Field(ge=2017, le=2100)] = Field(default_factory=lambda checked: YEARS[checked["family"]])
