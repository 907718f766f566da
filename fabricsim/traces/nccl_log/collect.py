"""Collects what a log of NCCL says, line by line, and finds which communicator each message is about.

NCCL names a communicator by its address, which is one process's own and may be used again. What is said of rings, trees
and channels names none at all: it belongs to the one that the same thread sets up.
"""

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.nccl_log.facts import Facts
from fabricsim.traces.nccl_log.lines import LogMessage, Process, messages
from fabricsim.traces.nccl_log.records import CALL, Communicator, LoggedChoice, NcclLog

MOST_KEPT = 4_000_000
"""Communicators, ring members, tree places and choices that are held of one log."""

_VERSION = re.compile(r"\b[NR]CCL version\s*:?\s*(\d{1,3}\.\d{1,3}[\w.]{0,20}(?:\+(?:cuda|hip)\d{1,3}\.\d{1,3})?)")
_NETWORK = re.compile(r"Using network (\S.{0,60})$")
_OLD_NETWORK = re.compile(r"NET/(\w{1,20}) ?: Using \[0\]")
_ADAPTER = re.compile(r"\[\d{1,3}\](\w{1,40}:\d{1,3}/(?:IB|RoCE))")
_COMMUNICATOR = re.compile(
    r"comm (0x[0-9a-f]{1,16}) rank (\d{1,8}) nranks (\d{1,8}) cudaDev (-?\d{1,4})"
    r"(?: nvmlDev -?\d{1,4})?(?: busId [0-9a-f]{1,16})?(.{0,200})- Init (START|COMPLETE)"
)
_SPLIT = re.compile(r" parent (0x[0-9a-f]{1,16})(?: \w{1,20} \d{1,9})? color (-?\d{1,10}) key ")
_COMMON = re.compile(r" commId (0x[0-9a-f]{1,16})")
_CALL = re.compile(
    r"(\w{1,40}): opCount ([0-9a-f]{1,15}) sendbuff \S{1,20} recvbuff \S{1,20} count (\d{1,18}) datatype (\d{1,3}) "
    r"op -?\d{1,10} root (-?\d{1,8}) comm (0x[0-9a-f]{1,16}) \[nranks=(\d{1,8})\] stream (0x[0-9a-f]{1,16}|\(nil\))"
    r"(?: task \d{1,9} globalrank (\d{1,8}))?"
)
_CALLED = ": opCount "
_CHOICE = re.compile(
    r"(?:(\w{1,40}): )?(\d{1,18}) Bytes -> Algo (\w{1,20}) proto (\w{1,20})"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\})?"
)
_ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""By number, as of NCCL 2.14 and later (``src/include/nccl_common.h``); 2 was the only CollNet before."""
_PROTOCOLS = ("ll", "ll128", "simple")
_MOST_NAMES = 64  # versions, networks, operations: a log has a few
_PACK = 2**16


class Collector:
    """Takes a log line by line. `source`: the file, for messages."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.versions: dict[str, None] = {}
        self.networks: dict[Process, str] = {}
        self.old_networks: dict[Process, str] = {}
        self.adapters: dict[Process, tuple[str, ...]] = {}
        self.communicators: list[Communicator] = []
        self.by_address: dict[tuple[Process, str], int] = {}
        self.setting_up: dict[tuple[Process, int, int], Facts] = {}
        self.announcing: dict[Process, Facts] = {}  # processes of an NCCL that says Init START, and their last
        self.choices: Counter[LoggedChoice] = Counter()
        self.operations: dict[str, int] = {}
        self.calls: list[tuple[int, ...]] = []
        self.packed: list[NDArray[np.void]] = []
        self.called = 0
        self.torn = 0
        self.kept = 0

    def take(self, number: int, line: str) -> None:
        """Take a line; its number counts from 1."""
        if "CCL " not in line:
            return
        if "CCL version" in line and len(self.versions) < _MOST_NAMES:
            self.versions.update(dict.fromkeys(_VERSION.findall(line)))
        calls = self.called + line.count(_CALLED)
        for message in messages(line):
            self._message(message)
            if self.kept > MOST_KEPT:
                msg = "sets up more communicators than can be held; cut the log to one run"
                raise TraceError(self.source, msg, number)
        if self.called < calls and not self.torn:
            self.torn = number

    def _message(self, message: LogMessage) -> None:
        text = message.text
        if _CALLED in text:
            self._call(message)
        elif " Bytes -> Algo " in text:
            self._choice(text)
        elif "- Init " in text:
            self._set_up(message)
        elif text.startswith(("Using network ", "NET/")):
            self._network(message)
        else:
            facts = self._facts(message)
            before = facts.kept
            if facts.take(text):
                self.kept += facts.kept - before

    def _facts(self, message: LogMessage) -> Facts:
        """Find what a thread sets up; one that has announced none works for the last of its process."""
        thread = (message.process, message.thread, message.device)
        if thread not in self.setting_up and message.process in self.announcing:
            return self.announcing[message.process]
        return self.setting_up.setdefault(thread, Facts())

    def _set_up(self, message: LogMessage) -> None:
        match = _COMMUNICATOR.search(message.text)
        if match is None:
            return
        address, rank, size, device, rest, state = match.groups()
        thread = (message.process, message.thread, message.device)
        seen = self._known(message.process, address)
        if seen is None or seen.complete:
            seen = self._new(Communicator(message.process, int(device)), address)
        seen.rank, seen.size = int(rank), int(size)
        if state == "START":
            self.setting_up[thread] = self.announcing[message.process] = seen.facts
        else:
            seen.complete = True
            seen.identity = self._identity(message.process, rest)
            if message.process not in self.announcing:
                seen.facts = self.setting_up.pop(thread, seen.facts)

    def _identity(self, process: Process, rest: str) -> str:
        common, split = _COMMON.search(rest), _SPLIT.search(rest)
        parent = self._known(process, split[1]) if split else None
        if split is None or parent is None or not parent.identity:
            return common[1] if common and split is None else ""
        parent.splits += 1
        return f"{parent.identity}/{parent.splits}.{split[2]}"

    def _known(self, process: Process, address: str) -> Communicator | None:
        number = self.by_address.get((process, address))
        return None if number is None else self.communicators[number]

    def _new(self, seen: Communicator, address: str) -> Communicator:
        self.by_address[seen.process, address] = len(self.communicators)
        self.communicators.append(seen)
        self.kept += 1
        return seen

    def _network(self, message: LogMessage) -> None:
        process, text = message.process, message.text
        self.kept += process not in self.networks and process not in self.old_networks
        if used := _NETWORK.match(text):
            self.networks.setdefault(process, used[1].strip())
        elif old := _OLD_NETWORK.match(text):
            self.old_networks[process] = old[1]  # the last is tried first
            if adapters := _ADAPTER.findall(text):
                self.adapters[process] = tuple(adapters)

    def _choice(self, text: str) -> None:
        match = _CHOICE.search(text)
        if match is None:
            return
        operation, size, algorithm, protocol, low, high = match.groups()
        channels = int(high) - int(low) + 1 if low else NONE
        names = (_named(algorithm, _ALGORITHMS), _named(protocol, _PROTOCOLS))
        choice = LoggedChoice(operation or "", int(size), *names, channels)
        self.kept += choice not in self.choices
        self.choices[choice] += 1

    def _call(self, message: LogMessage) -> None:
        match = _CALL.search(message.text)
        if match is None:
            return
        self.called += 1
        operation, number, count, datatype, root, address, size, stream, rank = match.groups()
        seen = self._known(message.process, address)
        if seen is None:
            seen = self._new(Communicator(message.process, message.device, size=int(size)), address)
        if rank and seen.rank == NONE:
            seen.rank = int(rank)
        if operation not in self.operations and len(self.operations) == _MOST_NAMES:
            operation = next(iter(self.operations))
        what = self.operations.setdefault(operation, len(self.operations))
        where = self.by_address[message.process, address]
        handle = 0 if stream == "(nil)" else int(stream, 16)
        self.calls.append((where, what, int(count), int(datatype), int(root), int(number, 16), handle))
        if len(self.calls) == _PACK:
            self._pack()

    def _pack(self) -> None:
        self.packed.append(np.array(self.calls, CALL))
        self.calls.clear()

    def finish(self) -> NcclLog:
        """Give what was collected. Raises TraceError if there is nothing of NCCL in the file."""
        self._pack()
        self._take_unfinished()
        networks = Counter((self.old_networks | self.networks).values())
        adapters = Counter(adapter for listed in self.adapters.values() for adapter in listed)
        if not (self.versions or networks or adapters or self.communicators or self.choices):
            raise TraceError(self.source, "holds no messages of NCCL; run the job with NCCL_DEBUG=INFO")
        return NcclLog(
            self.source,
            tuple(self.versions),
            networks,
            adapters,
            tuple(self.communicators),
            self.choices,
            tuple(self.operations),
            np.concatenate(self.packed),
            self.torn,
        )

    def _take_unfinished(self) -> None:
        """Keep communicators whose set-up the log does not finish, and ranks that only their trees say."""
        done = {id(seen.facts) for seen in self.communicators}
        for (process, _, device), facts in self.setting_up.items():
            if facts and id(facts) not in done:
                self.communicators.append(Communicator(process, device, facts=facts))
        for seen in self.communicators:
            seen.rank = seen.facts.rank if seen.rank == NONE else seen.rank


def _named(text: str, names: tuple[str, ...]) -> str:
    """Name what a log gives by number or by a name with or without underscores."""
    if text.isdigit():
        return names[int(text)] if int(text) < len(names) else text
    plain = text.casefold().replace("_", "")
    return next((name for name in names if name.replace("_", "") == plain), text.casefold())
