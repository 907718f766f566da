"""One HDF5 file per run: `write` and `read`, inverse to each other.

The file explains itself: root attributes say what was run by which software, each group is one
table with one dataset per column (`fabricsim.results.columns`), and index datasets are attached as
dimension scales, so that ``xarray.open_dataset(path, group="ops", engine="h5netcdf")`` opens it.
Nothing in it depends on the wall clock: the same run gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fabricsim.errors import ResultError
from fabricsim.files.atomic import whole
from fabricsim.results import to_hdf5
from fabricsim.results.from_hdf5 import read_result
from fabricsim.results.hdf5_reader import open_result
from fabricsim.results.traffic import TrafficRecord
from fabricsim.results.traffic_hdf5 import read_traffic, write_traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    import h5py

    from fabricsim.results.result import RunRecord


def write(result: RunRecord | TrafficRecord, path: Path | str) -> None:
    """Write the result of a job or of traffic to an HDF5 file.

    The file is written beside its place under a name of its own and renamed when it is whole; whatever
    goes wrong, no part of it is left. ``wall_seconds`` is not stored.

    `result`: the run.
    `path`: file to write; one of that name is replaced.
    Raises ResultError if the file cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        raise ResultError(f"{target}: is a directory; name the file to write")
    content = image(result)
    with whole(target, "name a file in a folder that exists and has room", ResultError) as part:
        part.write_bytes(content)


def image(result: RunRecord | TrafficRecord) -> bytes:
    """Give the bytes of the file that `write` writes."""
    if isinstance(result, TrafficRecord):
        return _image(lambda file: write_traffic(file, result))
    return _image(lambda file: to_hdf5.write_result(file, result))


def _image(content: Callable[[h5py.File], None]) -> bytes:
    """Lay the file out in memory: the HDF5 library crashes where a disk is full in the middle of a file."""
    import h5py  # noqa: PLC0415  a command that writes no result need not load HDF5

    # a fixed format version: newer HDF5 libraries would write other bytes
    with h5py.File("result", "w", driver="core", backing_store=False, libver=("earliest", "v110")) as file:
        content(file)
        file.flush()
        image: bytes = file.id.get_file_image()
    return image


def read(path: Path | str) -> RunRecord:
    """Read a result file.

    `path`: a file that `write` made.
    Returns: equal to the one written, but for ``wall_seconds``, which is 0.
    Raises ResultError if the file is missing, truncated, of another kind, of a later format or inconsistent. The memory
        taken is bounded by the size of the file.
    """
    found = read_any(path)
    if isinstance(found, TrafficRecord):
        msg = f"{path}: is the result of fabricsim traffic, not of a job; fabricsim plot, report and rerun take it"
        raise ResultError(msg)
    return found


def read_any(path: Path | str) -> RunRecord | TrafficRecord:
    """Read a result file of a job or of traffic; as `read`."""
    with open_result(Path(path)) as reader:
        return read_traffic(reader) if reader.is_traffic else read_result(reader)
