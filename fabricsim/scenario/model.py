"""Transformers by their numbers."""

from __future__ import annotations

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
    ``router_precision`` is that of scores, that of the job if left out.
    """

    count: Positive
    per_token: Positive = 2
    feed_forward: Positive | None = None
    shared: Annotated[int, Field(ge=0, lt=2**31)] = 0
    dense_layers: Annotated[int, Field(ge=0, lt=2**31)] = 0
    every: Positive = 1
    clamped: bool = False
    router_precision: Literal["fp32", "bf16"] | None = None


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
    to itself and those before it, so many together, in all layers but every ``full_every``-th (gpt-oss). ``year``
    says what was usual when the model was trained, see `fabricsim.scenario.job.Job`; it defaults to that of the
    family (`YEARS`).
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
    year: Annotated[int, Field(ge=2017, le=2100)] = Field(default_factory=lambda checked: YEARS[checked["family"]])
