"""Files that users write, and results that fabricsim wrote: small ones of each kind, and what commands do with them.

`fuzz_readers` damages them. A reader takes the file and a folder that it may write into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zlib import crc32

from fabricsim.cli.runs import plot
from fabricsim.collectives import msccl
from fabricsim.engine.packet.recorder import Watch
from fabricsim.report import plots
from fabricsim.results.hdf5 import image, read_any
from fabricsim.results.summary import summarise, to_json
from fabricsim.results.traffic import TrafficRecord, summarise_traffic
from fabricsim.run import pipeline, traffic
from fabricsim.scenario import library
from fabricsim.scenario.load import from_tables
from fabricsim.topology import cable_file, path_file
from fabricsim.traces.astrasim import scenario as astrasim
from fabricsim.workload import matrix
from tests.reference import hdf5_damage, mutations


class Kind(NamedTuple):
    """A kind of files: samples, what reads them, and how one is damaged."""

    samples: Callable[[], list[bytes]]
    read: Callable[[Path, Path], None]
    damage: Callable[[Random, Sequence[bytes]], bytes] = mutations.mutate


def _scenarios() -> list[bytes]:
    own = [library.path("scenarios", name).read_bytes() for name in ("gpt2-medium-pp", "what-if-leaf-spine", "fsdp")]
    return [*own, _SCENARIO.encode()]


_SCENARIO = """
name = "small"
extends = "gpt2-medium-dp"
seed = 3
engine = "packet"

[cluster]
include = "ideal"
hosts = 4

[fabric]
topology = "leaf-spine"
hosts_per_leaf = 2
spines = 2

[job]
micro_batch = 2
global_batch = 64
parallelism = { data = 4, tensor = 1 }
"""


def _check(path: Path, output: Path) -> None:  # noqa: ARG001  as all readers
    pipeline.check(pipeline.load(path))


_CABLES = b"""# two hosts on each of two switches
a,b,gbps,delay_ns
0,4,100,500
1,4,100,500
2,5,100,500
3,5,100,500.25
4,5,400,1000
"""
_NAMED = b"".join(b"host%d,leaf%d,100,500\n" % (host, host // 2) for host in range(4))
_NAMED = b"a,b,gbps,delay_ns\n" + _NAMED + b"leaf0,leaf1,400,1000\n"
_PATHS = b"id,src,dst,hops,node_path\n0,0,3,3,0-4-5-3\n1,3,0,3,3-5-4-0\n2,0,1,2,0-4-1\n"
_FLOWS = b"id,src,dst,bytes,start_ns\n1,0,3,100000,0\n2,1,2,5000000,17\n# all\n3,2,0,1,1000000\n"
_HTSIM = b"Nodes 4\nConnections 2\n0->1 id 1 start 0 size 10240000\n2->3 id 2 start 1000 size 4096\n"


def _table(path: Path, output: Path) -> None:
    """Read a file as cables, paths or flows, by its columns; cables are made a fabric, and flows sent on one."""
    head = path.read_bytes()[:200]
    if b"gbps" in head or b"node_path" in head:
        given = ["links", "paths"][b"node_path" in head]
        reader = cable_file.read if given == "links" else path_file.read
        reader(path, 4)
        cables = output / "cables.csv"
        cables.write_bytes(_CABLES)
        named = f'links = "{path if given == "links" else cables}"'
        paths = f'paths = "{path}"' if given == "paths" else ""
        scenario = output / "written.toml"
        scenario.write_text(
            f'name = "t"\ncluster = {{ include = "ideal", hosts = 4 }}\ntransport = "ideal-100g"\n'
            f'collectives = "ideal"\n[fabric]\ntopology = "file"\n{named}\n{paths}\n',
            encoding="utf-8",
        )
        pipeline.check(pipeline.load(scenario))
    else:
        found = matrix.read(path)
        if found.flows["bytes"].sum() < _MOST_SENT:
            traffic.simulate(pipeline.load("ideal-16").scenario, found)


_MOST_SENT = 10**12
_XML = b"""<algo name="ring" nchunksperloop="4" ngpus="2" coll="allgather" proto="Simple" inplace="1">
  <gpu id="0" i_chunks="0" o_chunks="0" s_chunks="0">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="1"/>
      <step s="1" type="r" srcbuf="o" srcoff="2" dstbuf="o" dstoff="2" cnt="2" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="0" o_chunks="0" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="2" dstbuf="o" dstoff="2" cnt="2" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="0" deps="0" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""


def _algorithm(path: Path, output: Path) -> None:  # noqa: ARG001  as all readers
    msccl.read.cache_clear()
    found = msccl.read(str(path))
    msccl.template(str(path), found.collective, found.ranks)


_YAML = (
    b"topology: [ Switch, Ring ]\nnpus_count: [ 8, 4 ]\nbandwidth: [ 400, 50.5 ] # GB/s\nlatency: [ 936.25, 1e3 ]\n",
    b"bandwidth:\n- 150\nlatency:\n- 1000\nnpus_count:\n- 4\ntopology:\n- FullyConnected\nother: {a: [b]}\n",
)


def _configuration(path: Path, output: Path) -> None:
    made = output / "written.toml"
    astrasim.convert(path, None, made)
    pipeline.check(pipeline.load(made))


_DRAWN = 4
"""One in so many results is drawn, which takes far longer than all else."""


@cache
def _results() -> list[bytes]:
    """Run small jobs and a small matrix by both engines."""
    job = [
        "cluster.hosts=2",
        "job.parallelism.data=2",
        "job.global_batch=16",
        "job.micro_batch=8",
        "job.model.layers=2",
    ]
    flow = pipeline.simulate(pipeline.load("gpt2-medium-dp", job))
    folded = pipeline.simulate(pipeline.load("gpt2-medium-dp", [*job, "folding=close"]))
    watch = Watch(queues=("*",), rates=("*",), flows=("*",), packets=("host0*",))
    sent = []
    for engine in ("flow", "packet"):
        ideal = pipeline.load("ideal-16", ["cluster.hosts=4", f"engine={engine}"])
        demand = traffic.request("ring", ideal.scenario, size="100kB")
        found = traffic.simulate(ideal.scenario, demand, watch=watch if engine == "packet" else None)
        sent.append(replace(found, resolved=ideal.resolved))
    recorded = replace(flow, engine="packet", packets=sent[1].packets)
    with TemporaryDirectory() as folder:  # matplotlib makes folders of its own at first
        plots.save(plots.breakdown(flow), Path(folder) / "breakdown.png")
    return [image(result) for result in (flow, folded, recorded, *sent)]


def _result(path: Path, output: Path) -> None:
    """Read a result, say what it holds, look whether it could be run again, and draw some."""
    found = read_any(path)
    if isinstance(found, TrafficRecord):
        summarise_traffic(found)
        from_tables(found.resolved)
    else:
        to_json(summarise(found))
    if crc32(path.read_bytes()) % _DRAWN == 0:
        with redirect_stderr(StringIO()):
            plot(path, output=output)
    if not isinstance(found, TrafficRecord):
        pipeline.check(pipeline.reload(found))


def _crafted(chance: Random, samples: Sequence[bytes]) -> bytes:
    sample = chance.choice(samples)
    if chance.random() < 0.2:
        return mutations.mutate(chance, [sample])
    return hdf5_damage.damage(chance, sample)


KINDS = {
    "csv": Kind(lambda: [_CABLES, _NAMED, _PATHS, _FLOWS, _HTSIM], _table),
    "hdf5": Kind(_results, _result, _crafted),
    "toml": Kind(_scenarios, _check),
    "xml": Kind(lambda: [_XML], _algorithm),
    "yaml": Kind(lambda: list(_YAML), _configuration),
}
