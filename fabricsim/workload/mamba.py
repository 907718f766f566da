"""A layer of Mamba-2, as Megatron-LM's ``MambaMixer`` has it.

One product gives, for each token, gates and inputs of all heads, two vectors of each group and a step of each head. A
convolution over a few tokens goes over inputs and vectors, then the scan of the sequence in chunks of ``Q`` tokens
(Dao and Gu, arXiv 2405.21060, section 6): of each chunk the product of its inputs with the first vectors is a state,
states are passed from chunk to chunk, and a token's result is that of its chunk, masked like attention, and that of the
state before it. With ``T`` tokens, ``d`` elements of all heads and ``N`` columns of a state these are ``2 T d N``,
``T d Q`` and ``2 T d N`` FLOPs. Gates multiply the result, a norm of each group follows, and a product leads back.

The kernels are those of mamba_ssm (``MambaSplitConv1dScanCombinedFn``, mamba_ssm/ops/triton/ssd_combined.py), whose
backward pass makes convolution and states again, and then takes gradients of states, inputs and both vectors
(``2 T d N`` each), of results with respect to inputs, products and steps (``T d Q`` each).

Tensor parallelism splits heads and groups. So does context parallelism: by an all-to-all before the convolution and one
behind the scan, ranks trade parts of the sequence for heads (``MambaContextParallel``).
"""

from functools import partial
from typing import NamedTuple

from fabricsim.scenario.job import Job
from fabricsim.workload.norms import branch, layer_norm, residual
from fabricsim.workload.shapes import state_space_of
from fabricsim.workload.tape import FP32, PRECISION_BYTES, Tape, product
from fabricsim.workload.work import Exchange, Item, Operation, Pass

_scanning, _gradient = partial(Operation, kernel="scan"), partial(Operation, kernel="scan-gradient")


class Scan(NamedTuple):
    """What one rank scans.

    `tokens`: those that it has, with all heads of its tensor-parallel group; context-parallel ranks trade some of these
        for tokens, and scan as much.
    `chunks`: of all sequences, so many `chunk` tokens each.
    `inner`: elements of a token of all heads.
    `width`: bytes of an element.
    """

    tokens: int
    chunks: int
    chunk: int
    heads: int
    inner: int
    groups: int
    state: int
    width: int

    @property
    def vectors(self) -> int:
        """Elements of one of both vectors of a token, of all groups."""
        return self.groups * self.state

    @property
    def columns(self) -> int:
        """Elements of a token that the first product gives."""
        return 2 * self.inner + 2 * self.vectors + self.heads

    @property
    def of_inputs(self) -> int:
        """Bytes of inputs, or gates, or results."""
        return self.width * self.tokens * self.inner

    @property
    def of_vectors(self) -> int:
        """Bytes of one of both vectors."""
        return self.width * self.tokens * self.vectors

    @property
    def states(self) -> int:
        """Elements of the states of all chunks."""
        return self.chunks * self.inner * self.state

    @property
    def steps(self) -> int:
        """Bytes of steps of all tokens and of their sums, in fp32."""
        return 2 * FP32 * self.tokens * self.heads

    @property
    def pairs(self) -> int:
        """Bytes of products of both vectors of the tokens of a chunk, in fp32."""
        return FP32 * self.chunks * self.groups * self.chunk**2


def scan_of(job: Job) -> Scan:
    """Return what one rank of a job scans in a layer of Mamba-2 for one micro-batch."""
    space, tensor, context = state_space_of(job.model), job.parallelism.tensor, job.parallelism.context
    heads, groups = space.heads // tensor, space.groups // tensor
    tokens, length = job.micro_batch * job.sequence // context, job.packed or job.sequence
    chunks = job.micro_batch * (job.sequence // length) * -(-length // space.chunk) // context
    width = PRECISION_BYTES[job.precision]
    return Scan(tokens, max(chunks, 1), space.chunk, heads, heads * space.head_width, groups, space.state, width)


def mamba(tape: Tape, job: Job) -> None:
    """Record the sublayer for one micro-batch."""
    scan, hidden = scan_of(job), job.model.hidden
    tokens = tape.tokens(job.sequence)
    tape.recorded = "mamba" in job.recorded
    branch(tape, tokens * hidden)
    layer_norm(tape, tokens * hidden, turns=True)
    tape.column("Mamba in", (tokens, hidden, scan.columns), normed=True)
    _trade(tape, scan.tokens * scan.columns)
    if job.micro_batch > 1:  # sequence by sequence, and back
        tape.stream("order by sequence", scan.tokens * scan.columns, Pass(1, 1), Pass(1, 1))
    tape.step(_forward(scan), _backward(scan), scan.width * scan.tokens * scan.columns + scan.of_inputs)
    if job.micro_batch > 1:
        tape.stream("order by token", scan.tokens * scan.inner, Pass(1, 1), Pass(1, 1))
    _trade(tape, scan.tokens * scan.inner)
    norm = Pass(1, 1), Pass(2, 1), Pass(2, 0, weight=True)
    tape.stream("group norm", scan.tokens * scan.inner, *norm, stored=tape.width)
    tape.row("Mamba out", (tokens, scan.inner, hidden))
    residual(tape, tokens * hidden)
    tape.recorded = False


def _trade(tape: Tape, elements: int) -> None:
    """Record the all-to-all that trades parts of the sequence for heads."""
    if tape.job.parallelism.context > 1:
        exchange = Exchange("all_to_all", "context", elements * tape.width)
        tape.step([exchange], [exchange])


def _flops(scan: Scan) -> tuple[int, int]:
    """FLOPs of a product of inputs or results with states, and of one within chunks, of which a mask hides half."""
    elements = scan.tokens * scan.inner
    return 2 * elements * scan.state, elements * scan.chunk


def _states(scan: Scan) -> list[Operation]:
    """Make the convolution, steps and their sums, products of both vectors, and states of chunks."""
    with_state, _ = _flops(scan)
    mixed = scan.of_inputs + 2 * scan.of_vectors
    vectors = scan.chunks * scan.groups, scan.chunk, scan.state, scan.chunk
    return [
        Operation("convolution", 0, 2 * mixed, kernel="function"),
        Operation("sum up steps", 0, scan.width * scan.tokens * scan.heads + scan.steps),
        product("products of vectors", vectors, scan.width, output=FP32),
        _scanning("chunk states", with_state, scan.of_inputs + scan.of_vectors + scan.steps + FP32 * scan.states),
    ]


def _forward(scan: Scan) -> list[Item]:
    with_state, within = _flops(scan)
    # inputs, gates, results with and without these, second vectors, states, products and steps
    traffic = 4 * scan.of_inputs + scan.of_vectors + scan.width * scan.states + scan.pairs + scan.steps
    return [
        *_states(scan),
        Operation("pass states", 0, (FP32 + scan.width) * scan.states),
        _scanning("chunk scan", with_state + within, traffic),
    ]


def _backward(scan: Scan) -> list[Item]:
    with_state, within = _flops(scan)
    narrow, wide, inputs, vectors = scan.width * scan.states, FP32 * scan.states, scan.of_inputs, scan.of_vectors
    vector_gradient = scan.chunks * scan.groups, scan.chunk, scan.chunk, scan.state
    return [
        *_states(scan),
        Operation("pass states", 0, 2 * wide),
        Operation("gate gradient", 0, 5 * inputs, kernel="function"),
        _gradient("chunk states gradient", with_state, inputs + vectors + scan.steps + wide),
        Operation("pass states gradient", 0, 2 * wide + 2 * narrow),
        _gradient("input gradient", with_state + within, 3 * inputs + vectors + narrow + scan.pairs + scan.steps),
        _gradient("first vector gradient", with_state, inputs + narrow + scan.steps + 2 * vectors),
        _gradient("second vector gradient", with_state, inputs + narrow + scan.steps + 2 * vectors),
        _gradient("gradient of products", within, 2 * inputs + scan.pairs + scan.steps),
        *[product("vector gradient", vector_gradient, scan.width)] * 2,
        _gradient("step gradient", within, 2 * inputs + scan.pairs + scan.steps),
        Operation("sum up steps gradient", 0, 2 * scan.steps),
        Operation("convolution gradient", 0, 3 * (inputs + 2 * vectors), kernel="function"),
    ]
