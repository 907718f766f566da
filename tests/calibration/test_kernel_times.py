"""From a trace to a preset to a run: measured kernels take the time that was measured."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricsim.calibration import gpu_preset
from fabricsim.calibration.kernel_times import KernelTime, KernelTimes, is_kernel_trace, read_kernels
from fabricsim.errors import InputError, TraceError
from fabricsim.run.pipeline import simulate
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job
from fabricsim.scenario.load import load
from fabricsim.workload.operations import block_work
from fabricsim.workload.roofline import roofline_time
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.work import Operation
from tests.reference import kineto_traces

US = 10**6  # ps
MM = ("aten::mm", [[64, 32], [32, 16]])


def of_shape(found: KernelTimes, *shape: int) -> KernelTime:
    (one,) = (each for each in found.kernels if each.what.operation.shape == shape)
    return one


@pytest.fixture
def measure(tmp_path: Path) -> Callable[..., KernelTimes]:
    """Write a trace of calls, and read what it says of kernels."""

    def read(*calls: object, **options: object) -> KernelTimes:
        kineto_traces.write_calls(tmp_path / "rank0.json", calls, **options)
        return read_kernels([tmp_path / "rank0.json"])

    return read


def test_a_layer(measure: Callable[..., KernelTimes]) -> None:
    found = measure(*kineto_traces.LAYER)

    assert [(each.what.kind, each.median) for each in found.kernels] == [
        ("product bf16", 246 * US),  # with the kernel that adds up the parts of its inner dimension
        ("product bf16", 92 * US),
        ("product bf16", 260 * US),
        ("product bf16", 255 * US),
        ("layer norm", 24 * US),
    ]
    assert found.device == "NVIDIA A100-SXM4-40GB"
    assert [(each.operator, each.calls, each.time) for each in found.unmatched] == [("aten::tanh", 1, 90 * US)]
    assert (found.matched, found.total) == (877 * US, 967 * US)


def test_calls_of_one_shape_are_told_by_median_and_quartiles(measure: Callable[..., KernelTimes]) -> None:
    calls = [kineto_traces.Call(*MM, [(kineto_traces.GEMM, ns)]) for ns in (9000, 1000, 2000, 4000, 3000)]
    one = of_shape(measure(*calls), 1, 64, 32, 16)

    assert (len(one.times), one.median, one.quartiles) == (5, 3 * US, (2 * US, 4 * US))
    assert not one.beside


def test_calls_beside_another_kernel_count_only_where_there_are_no_others(measure: Callable[..., KernelTimes]) -> None:
    alone = kineto_traces.Call(*MM, [(kineto_traces.GEMM, 10_000)])
    slowed = kineto_traces.Call(*MM, [(kineto_traces.GEMM, 15_000)])
    other = kineto_traces.Call("aten::tanh", [[4]], [("void at::native::tanh_kernel", 5_000)], beside=True)
    one = of_shape(measure(alone, alone, slowed, other), 1, 64, 32, 16)
    found = measure(slowed, other)
    only = of_shape(found, 1, 64, 32, 16)

    assert (one.times.tolist(), one.left_out, one.beside) == ([10 * US] * 2, 1, False)
    assert (only.times.tolist(), only.left_out, only.beside) == ([15 * US], 0, True)
    assert any(
        "1 of 1 kernels ran beside others" in text for text in found.warnings(gpu_preset.gpu_of("a100-sxm-40gb"))
    )
    assert "# measured, trace rank0.json, once, always beside another kernel" in gpu_preset.render("x", found)


def test_the_roofline_is_held_against_the_measured_time(measure: Callable[..., KernelTimes]) -> None:
    gpu = gpu_preset.gpu_of("a100-sxm-40gb")
    found = measure(*kineto_traces.LAYER)
    one = of_shape(found, 1, 8192, 1024, 3072)

    assert one.ratio(gpu) == pytest.approx(roofline_time(one.what.operation, "bf16", gpu) / (260 * US))
    assert 0.5 < (one.ratio(gpu) or 0) < 2
    v100 = gpu_preset.gpu_of("v100-sxm2-16gb")
    assert one.ratio(v100) is None
    warnings = list(found.warnings(v100))
    assert "the traces are of NVIDIA A100-SXM4-40GB, and --gpu is v100-sxm2-16gb" in warnings
    assert "v100-sxm2-16gb has no peak for bf16, so no job in it runs there" in warnings


def test_what_the_preset_says_is_what_was_measured(measure: Callable[..., KernelTimes], tmp_path: Path) -> None:
    attention = [[2, 1024, 16, 64]] * 3
    causal = kineto_traces.Call(
        "aten::_flash_attention_forward", attention, [("flash_fwd_kernel", 50_000)], values=[*[""] * 8, "True"]
    )
    found = measure(*kineto_traces.LAYER, causal)
    path = tmp_path / "measured.toml"
    gpu_preset.write(path, "a100-sxm-40gb", found)
    gpu, base = gpu_preset.gpu_of(str(path)), gpu_preset.gpu_of("a100-sxm-40gb")

    assert {(each.kernel, each.shape, each.causal): each.time for each in gpu.kernels} == {
        (each.what.operation.kernel, each.what.operation.shape, each.what.causal): each.median
        for each in found.kernels
        if each.what.operation.shape
    }
    text = path.read_text(encoding="utf-8")
    assert str(Path(found.sources[0]).parent) not in text
    assert f"#   {Path(found.sources[0]).name}\n" in text
    assert [(each.operation, each.bytes, each.time) for each in gpu.streams] == [("layer norm", 2**25, 24 * US)]
    assert gpu.model_copy(update={"kernels": (), "streams": ()}) == base
    assert all("# measured, trace rank0.json, once" in line for line in lines_of_times(path))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["measured.toml", "rank0.json"]


def lines_of_times(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("time")]


def test_a_preset_is_laid_over_a_file_beside_it(measure: Callable[..., KernelTimes], tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('include = "a100-sxm-40gb"\nkernel_latency = "9us"\n', encoding="utf-8")
    found = measure(*kineto_traces.LAYER)
    gpu_preset.write(tmp_path / "measured.toml", str(mine), found)

    assert tomllib.loads((tmp_path / "measured.toml").read_text(encoding="utf-8"))["include"] == "mine.toml"
    assert gpu_preset.gpu_of(str(tmp_path / "measured.toml")).kernel_latency == 9 * US
    with pytest.raises(InputError, match="name another file"):
        gpu_preset.write(mine, str(mine), found)
    with pytest.raises(InputError, match="cannot be written"):
        gpu_preset.write(tmp_path / "none" / "measured.toml", "a100-sxm-40gb", found)


def products_of(job: Job) -> dict[tuple[int, int, int, int], int]:
    """How often an iteration of one micro-batch runs the product of each shape."""
    found: dict[tuple[int, int, int, int], int] = {}
    for block in stage_blocks(job.model, 1)[0]:
        work = block_work(block, job)
        for item in (*work.forward, *work.backward):
            if isinstance(item, Operation) and item.kernel == "product" and item.shape:
                found[item.shape] = found.get(item.shape, 0) + 1
    return found


@pytest.mark.slow
def test_a_run_takes_the_measured_times(tmp_path: Path) -> None:
    """Products of a whole job, each slower than the roofline's by a time of its own: the iteration is by their sum."""
    alone = ["cluster.hosts=1", "job.parallelism.data=1", "job.global_batch=8", "collectives=ideal"]
    settings = [*alone, "job.kernel_launch=0s"]
    before = load("gpt2-medium-dp", settings)
    job, gpu = before.scenario.job, before.scenario.cluster.gpu
    assert isinstance(job, Job)
    calls, more = [], 0
    for number, (shape, count) in enumerate(products_of(job).items()):
        took = roofline_of(shape, gpu) + (number + 1) * US
        took -= took % 1000  # ns
        more += count * (took - roofline_of(shape, gpu))
        batch, rows, inner, columns = shape
        name, ahead = ("aten::mm", []) if batch == 1 else ("aten::bmm", [batch])
        dimensions = [[*ahead, rows, inner], [*ahead, inner, columns]]
        calls.append(kineto_traces.Call(name, dimensions, [(kineto_traces.GEMM, took // 1000)], type="c10::Half"))
    kineto_traces.write_calls(tmp_path / "rank0.json", calls)
    gpu_preset.write(tmp_path / "gpu.toml", gpu.name, read_kernels([tmp_path / "rank0.json"]))

    after = load("gpt2-medium-dp", [*settings, f"cluster.gpu={tmp_path / 'gpu.toml'}"])

    assert len(after.scenario.cluster.gpu.kernels) == len(calls)
    assert simulate(after).iteration - simulate(before).iteration == more


def roofline_of(shape: tuple[int, int, int, int], gpu: Gpu) -> int:
    batch, rows, inner, columns = shape
    traffic = 2 * batch * (rows * inner + inner * columns + rows * columns)
    one = Operation("product", 2 * batch * rows * inner * columns, traffic, kernel="product", shape=shape)
    return roofline_time(one, "fp16", gpu)


@pytest.mark.slow
def test_dlrm_on_v100(traces: Path) -> None:
    """21 shapes of products in fp32, mostly of 16 rows, in one step of eight ranks."""
    found = read_kernels([traces / "kineto" / "dlrm_kineto.tar.gz"])
    gpu = gpu_preset.gpu_of("v100-sxm2-32gb")

    assert found.device == "Tesla V100-SXM2-32GB"
    assert len(found.sources) == 8
    products = [each for each in found.kernels if each.what.kind == "product fp32"]
    assert len(products) == 21
    assert sum(len(each.times) + each.left_out for each in products) == 8 * 23
    addmm = of_shape(found, 1, 16, 512, 512)
    assert addmm.median == pytest.approx(19 * US, abs=3 * US)  # 13 us, and 6 to add up its parts, on rank 0
    assert all(0.2 < (each.ratio(gpu) or 0) < 2 for each in products)
    assert 0.1 < found.matched / found.total < 0.5


@pytest.mark.parametrize(
    ("options", "calls", "problem"),
    [
        ({"shapes": False}, None, r"no shapes of operators; capture with .*record_shapes=True"),
        (
            {},
            [("aten::tanh", [[4]], [("tanh_kernel", 1000)])],
            r"no kernel .* most time goes to aten::tanh: tanh_kernel",
        ),
        ({}, [("record_function", [[4]], [("tanh_kernel", 1000)])], r"no kernel is of a kind"),
        ({}, [(*MM, [])], "holds no kernels"),
    ],
)
def test_a_trace_that_tells_nothing_is_an_error(
    options: dict[str, bool], calls: list[tuple[object, ...]] | None, problem: str, measure: Callable[..., KernelTimes]
) -> None:
    given = kineto_traces.LAYER if calls is None else [kineto_traces.Call(*call) for call in calls]
    with pytest.raises(TraceError, match=problem):
        measure(*given, **options)


def test_a_trace_without_operators_is_an_error(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {}}
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": [kernel]}))
    with pytest.raises(TraceError, match=r"no operators.*ProfilerActivity\.CPU"):
        read_kernels([tmp_path / "rank0.json"])


def test_traces_of_two_types_of_gpus_are_an_error(tmp_path: Path) -> None:
    for rank, device in enumerate(("NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3")):
        kineto_traces.write_calls(tmp_path / f"rank{rank}.json", kineto_traces.LAYER, device=device)
    with pytest.raises(TraceError, match=r"rank1.json: is of a NVIDIA H100 80GB HBM3, but .*rank0.json of a"):
        read_kernels([tmp_path])


def recorded() -> list[tuple[object, ...]]:
    return [call._replace(record=number) for number, call in enumerate(kineto_traces.LAYER, start=7)]


@pytest.mark.parametrize("nested", [False, True])
def test_shapes_of_an_execution_trace_are_as_good(
    nested: bool,  # noqa: FBT001  a column
    tmp_path: Path,
) -> None:
    kineto_traces.write_calls(tmp_path / "kineto.json", kineto_traces.LAYER)
    alone = read_kernels([tmp_path / "kineto.json"])
    kineto_traces.write_calls(tmp_path / "kineto.json", recorded(), shapes=False)
    kineto_traces.write_execution_trace(tmp_path / "et.json", recorded(), nested=nested)
    both = read_kernels([tmp_path / "kineto.json", tmp_path / "et.json"])

    assert [(each.what, each.median) for each in both.kernels] == [(each.what, each.median) for each in alone.kernels]
    assert both.sources == alone.sources
    with pytest.raises(TraceError, match=r"no shapes .* or give the execution trace of the same rank"):
        read_kernels([tmp_path / "kineto.json"])


def test_execution_traces_of_several_ranks_are_told_by_their_names(tmp_path: Path) -> None:
    calls = recorded()
    for rank, some in enumerate((calls[:1], calls[3:4])):
        kineto_traces.write_calls(tmp_path / f"kineto_{rank}.json", some, shapes=False)
        kineto_traces.write_execution_trace(tmp_path / f"et_{rank}.json", some, nested=True)
    found = read_kernels([tmp_path])

    assert [each.what.operation.shape for each in found.kernels] == [(1, 8192, 1024, 1024), (1, 8192, 1024, 3072)]
    (tmp_path / "et_1.json").unlink()
    with pytest.raises(TraceError, match=r"kineto_1\.json: holds no shapes"):
        read_kernels([tmp_path])


def test_an_execution_trace_of_another_run_is_an_error(tmp_path: Path) -> None:
    calls = recorded()
    kineto_traces.write_calls(tmp_path / "kineto.json", calls, shapes=False)
    for others in (calls[1:], [call._replace(operator="aten::bmm") for call in calls]):
        kineto_traces.write_execution_trace(tmp_path / "et.json", others, nested=True)
        with pytest.raises(TraceError, match=r"et\.json: does not say what aten::\w+ of .*kineto\.json"):
            read_kernels([tmp_path / "kineto.json", tmp_path / "et.json"])
    with pytest.raises(TraceError, match=r"et\.json: is an execution trace, which has no times"):
        read_kernels([tmp_path / "et.json"])


@pytest.mark.slow
def test_resnet_has_no_shapes(traces: Path) -> None:
    kineto = traces / "kineto" / "nccl_parser_config_nccl_data.json.gz"
    with pytest.raises(TraceError, match=r"no shapes of operators.*record_shapes=True"):
        read_kernels([kineto])
    with pytest.raises(TraceError, match="capture both at the same time"):  # of another run, three weeks before
        read_kernels([kineto, traces / "pytorch_et" / "resnet_2gpu_et.json.gz"])


def test_traces_are_known_by_their_contents(tmp_path: Path) -> None:
    kineto_traces.write_calls(tmp_path / "log.txt", kineto_traces.LAYER)
    (tmp_path / "et.json").write_text('{"schema": "1.0.1", "pid": 1, "nodes": []}')
    (tmp_path / "table.txt").write_text("# nccl-tests\n")

    assert is_kernel_trace(str(tmp_path / "log.txt"))
    assert not is_kernel_trace(str(tmp_path / "table.txt"))
    assert not is_kernel_trace("hkbu-10gbe-default")
    assert is_kernel_trace(str(tmp_path / "et.json"))
