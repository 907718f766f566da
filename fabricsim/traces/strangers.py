"""Files that users give by mistake in place of a trace: what they are, and which command takes them."""

import re

_NETWORK = "`fabricsim convert` reads those of ASTRA-sim 2: YAML with topology, npus_count, bandwidth, latency"
_TABLE = "which has no job that could be replayed; `fabricsim inspect` reads it"
_STRANGERS = (
    (rb"(?m)^#[ \t]+(?:nThread |size[ \t]+count)", f"is a table of nccl-tests, {_TABLE}"),
    (rb"(?m)^[^\n]{0,40}# OSU ", f"is a table of OSU's benchmarks, {_TABLE}"),
    (
        rb'"name"[ ]*:[ ]*"(?:hcom_|AscendCL@|aclnn)',
        "is a timeline of Ascend's own profiler, which is not read; capture an execution trace of PyTorch",
    ),
    (rb"\A\x89HDF", "is HDF5: `fabricsim plot` draws results of fabricsim"),
    (rb"\ASQLite format 3", "is an SQLite database, such as those of Nsight Systems; capture with PyTorch's profiler"),
    (rb'"topolog(?:y-name|ies-per-dim)"', f"is a network of ASTRA-sim 1.0; {_NETWORK}"),
    (rb"(?m)^(?:topology|npus_count)[ \t]*:", "is a network of ASTRA-sim: `fabricsim convert NETWORK.yml` reads it"),
    (
        rb'(?m)(?:^|")(?:scheduling-policy|all-reduce-implementation)"?[ \t]*:',
        "is a system configuration of ASTRA-sim: `fabricsim convert NETWORK.yml SYSTEM.json` takes JSON",
    ),
    (rb"(?m)^(?:(?:TP|DP|EP|PP):\s|Size,1 Node)", "holds bus bandwidths of SimAI's formula, and no operations"),
    (rb"(?m)^(?:\[(?:cluster|job|fabric)\]|extends[ \t]*=)", "is a scenario: `fabricsim run` runs it"),
)


def said_of(head: bytes) -> str:
    """Say what a file that begins so is, and what takes it; nothing if that is not known."""
    return next((what for pattern, what in _STRANGERS if re.search(pattern, head)), "")
