"""Jobs of published models, and their programs with free communication."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import COLLECTIVE
from fabricsim.scenario.job import Job, Model, Parallelism
from fabricsim.workload.program import Program

GPT2 = {"family": "gpt", "vocabulary": 50257, "positions": 1024}
BERT = {"family": "bert", "vocabulary": 30522, "positions": 512}
T5 = {"family": "t5", "vocabulary": 32128, "positions": 512}
MODELS = {
    "gpt2-medium": {**GPT2, "layers": 24, "hidden": 1024, "heads": 16},
    "gpt2-large": {**GPT2, "layers": 36, "hidden": 1280, "heads": 20},
    "gpt2-xl": {**GPT2, "layers": 48, "hidden": 1600, "heads": 25},
    "bert-base": {**BERT, "layers": 12, "hidden": 768, "heads": 12},
    "bert-large": {**BERT, "layers": 24, "hidden": 1024, "heads": 16},
    "llama3-8b": {
        "family": "llama",
        "vocabulary": 128256,
        "positions": 8192,
        "tied_embedding": False,
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "feed_forward": 14336,
    },
    "mixtral-8x7b": {
        "family": "llama",
        "vocabulary": 32000,
        "positions": 32768,
        "tied_embedding": False,
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "feed_forward": 14336,
        "experts": {"count": 8},
    },
    "t5-base": {**T5, "layers": 12, "decoder_layers": 12, "hidden": 768, "heads": 12},
    "t5-large": {**T5, "layers": 24, "decoder_layers": 24, "hidden": 1024, "heads": 16},
}


def make_model(name: str, **changes: Any) -> Model:  # noqa: ANN401  any field
    return Model.model_validate({"name": name, **MODELS[name], **changes})


def make_job(model: str | Model = "gpt2-medium", **changes: Any) -> Job:  # noqa: ANN401  any field
    """A job of one micro-batch per replica unless changed; the keys of its parallelism stand beside the others."""
    shape = make_model(model) if isinstance(model, str) else model
    degrees = {key: changes.pop(key) for key in Parallelism.model_fields if key in changes}
    batches = changes.pop("micro_batches", 1)
    table = {"micro_batch": 2, "sequence": 512, "launch": "graph", **changes}
    if shape.family == "t5":
        table.setdefault("decoder_sequence", table["sequence"])
    table.setdefault("global_batch", table["micro_batch"] * degrees.get("data", 1) * batches)
    return Job.model_validate({"model": shape, "parallelism": degrees, **table})


def replay(program: Program) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Longest path with free communication: start and end of each op; a call ends once all have joined."""
    ops, calls = program.ops, program.calls
    start, end = np.zeros(len(ops), np.int64), np.full(len(ops), -1, np.int64)
    waiting = ops["predecessors"].copy()
    joined: list[list[int]] = [[] for _ in calls]
    ready = deque(np.flatnonzero(waiting == 0).tolist())
    while ready:
        op = ready.popleft()
        finished = [op]
        if ops["kind"][op] == COLLECTIVE:
            members = joined[ops["call"][op]]
            members.append(op)
            finished = members if len(members) == len(calls[ops["call"][op]].ranks) else []
        moment = max((int(start[each]) for each in finished), default=0)
        for each in finished:
            end[each] = moment + ops["duration"][each]
            first = ops["first_successor"][each]
            for successor in program.successors[first : first + ops["successors"][each]].tolist():
                start[successor] = max(start[successor], end[each])
                waiting[successor] -= 1
                if waiting[successor] == 0:
                    ready.append(successor)
    assert (end >= 0).all(), "some ops never run: the program has a cycle or a deadlock"
    return start, end
