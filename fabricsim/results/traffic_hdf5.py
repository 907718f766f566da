"""A traffic run as an HDF5 file; see `fabricsim.results.hdf5`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.records.program import CLOCK_END
from fabricsim.results import columns, from_hdf5, to_hdf5
from fabricsim.results.traffic import DEMAND, MOST_ENDPOINTS, Matrix, ResourceUse, TrafficRecord

if TYPE_CHECKING:
    import h5py
    from numpy.typing import NDArray

    from fabricsim.results.hdf5_reader import ResultFile


def write_traffic(file: h5py.File, result: TrafficRecord) -> None:
    """Write all parts of a traffic run."""
    to_hdf5.write_about(file, columns.TRAFFIC_FORMAT, result)
    file.attrs["matrix"] = json.dumps({"name": result.matrix.name, "endpoints": result.matrix.endpoints})
    flows = {column.name: result.matrix.flows[column.name] for column in columns.ASKED}
    flows |= {"completion": result.completion, "alone": result.alone}
    group = file.create_group(columns.DEMAND.group)
    to_hdf5.write_table(group, columns.DEMAND, np.arange(len(result.completion)), flows)
    scale = to_hdf5.write_links(file, [use.link for use in result.links], folded=False)
    to_hdf5.write_column(file[columns.LINKS.group], columns.CROSSED, [use.flows for use in result.links], scale)
    to_hdf5.write_failures(file, result.failures)
    if result.packets is not None and result.series is not None:
        to_hdf5.write_series(file, result.series)
        to_hdf5.write_packets(file, result.packets)


def read_traffic(reader: ResultFile) -> TrafficRecord:
    """Read all parts of a traffic run; raises `fabricsim.errors.ResultError` if they do not fit together."""
    matrix, completion, alone = _read_demand(reader)
    links = from_hdf5.read_links(reader, folded=False)
    crossed = reader.numbers(columns.LINKS.group, columns.CROSSED, (len(links),)).tolist()
    packets = reader.has_group(columns.WIRES.group)
    about = from_hdf5.read_about(reader)
    failures = from_hdf5.read_failures(reader, links, about["resolved"])
    return TrafficRecord(
        **about,
        matrix=matrix,
        completion=completion,
        alone=alone,
        links=tuple(map(ResourceUse, links, crossed)),
        wall_seconds=0.0,
        packets=from_hdf5.read_packets(reader) if packets else None,
        series=from_hdf5.read_series(reader, links, failures) if packets else None,
        failures=failures,
    )


def _read_demand(reader: ResultFile) -> tuple[Matrix, NDArray[np.int64], NDArray[np.int64]]:
    told = reader.json_attribute("matrix")
    name, endpoints = told.get("name"), told.get("endpoints")
    whole = isinstance(name, str) and isinstance(endpoints, int) and 0 < endpoints <= MOST_ENDPOINTS
    reader.require(whole, "matrix does not say name and endpoints")
    found = reader.records(columns.DEMAND)
    flows = found[[column.name for column in columns.ASKED]].astype(DEMAND)
    reader.require(_possible(flows, int(str(endpoints))), "group demand has flows that no matrix has")
    took = (found["completion"] > 0) & (found["alone"] > 0) & (found["completion"] <= CLOCK_END - flows["start"])
    reader.require(bool(np.all(took)), "group demand has flows that take no time, or longer than the clock runs")
    return Matrix(flows, int(str(endpoints)), str(name)), found["completion"], found["alone"]


def _possible(flows: NDArray[np.void], endpoints: int) -> bool:
    source, target = flows["source"], flows["target"]
    apart = (source != target) & (np.minimum(source, target) >= 0) & (np.maximum(source, target) < endpoints)
    sent = (flows["bytes"] > 0) & (flows["start"] >= 0)
    return bool(len(flows)) and bool(np.all(apart & sent)) and len(np.unique(flows["id"])) == len(flows)
