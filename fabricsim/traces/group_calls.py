"""Communications of a group in a row, of which those that NCCL was given together run beside one another."""

from fabricsim.traces.trace import COMMUNICATION, HOST, Communication, RecordingBuilder


class GroupCalls:
    """Writes communications of several groups, each group's one after the other.

    A send and a receive of two ranks to each other would wait for one another in a row: between ``ncclGroupStart`` and
    ``ncclGroupEnd`` they do not.
    """

    def __init__(self, builder: RecordingBuilder) -> None:
        self._builder = builder
        self._last: dict[str, int] = {}
        self._together: dict[str, list[int]] = {}

    def node(  # noqa: PLR0913  columns of a node
        self,
        group: str,
        name: str,
        what: Communication,
        *,
        start: int,
        duration: int,
        sequence: int,
        together: bool,
    ) -> int:
        """Write a communication; one given together with others runs beside them until `close`."""
        builder = self._builder
        if not together:
            self.close(group)
        beside = self._together.setdefault(group, []) if together else []
        lane = _lane(group) + (f", {len(beside) + 1} of those given together" if together else "")
        node = builder.node(
            COMMUNICATION,
            builder.lane("stream", lane),
            name,
            communication=what,
            sequence=sequence,
            start=start,
            duration=duration,
        )
        if not together:
            self._last[group] = node
        elif group in self._last:
            builder.edge(self._last[group], node)
        beside.append(node)
        return node

    def close(self, group: str) -> None:
        """Let what follows in a group wait for all that was given together."""
        if beside := self._together.pop(group, []):
            lane = self._builder.lane("stream", _lane(group))
            self._last[group] = self._builder.node(HOST, lane, "end of group", duration=0)
            for node in beside:
                self._builder.edge(node, self._last[group])


def _lane(group: str) -> str:
    return f"communications of {group}"
