"""Record types of transports: flows, their receivers and laws, messages, and what hosts have before the wire.

One line per column, with its unit, as in `fabricsim.records.program`. Times are integer picoseconds, sizes
bytes, rates bytes per second, windows packets. An index of ``-1`` means none.
"""

from collections.abc import Mapping

import numpy as np

from fabricsim.records.packet import on_lines

# Kinds of loss recovery.
GO_BACK_N = 0
SELECTIVE = 1

SERVER = np.dtype([("free_at", np.int64), ("busy", np.int64), ("bytes", np.int64)], align=True)
"""A resource of a host, which serves packets one after the other: when it is free, and what it did (ps, payload)."""

STAGE = np.dtype([("server", np.int32), ("ps_per_byte", np.float64)], align=True)
"""A server on a flow's way through a host, and its time per payload byte."""

ENDPOINT = np.dtype(
    [
        ("head", np.int32),
        ("tail", np.int32),
        ("count", np.int32),
        ("waiting", np.int32),  # of these, the last ones, which no server has taken yet
        ("first_waiting", np.int32),  # place of the first of those
        ("received_at", np.int64),  # the last of the others, ps
    ],
    align=True,
)
"""A GPU or a host's memory: packets on their way to it through its host."""

TRANSFER = np.dtype(
    [
        ("first", np.int64),  # number of its first packet
        ("last", np.int64),  # number of its last packet
        ("tail", np.int32),  # payload of its last packet, bytes
        ("owner", np.int64),  # what the outbox or the lanes know it by
        ("posted", np.int64),  # ps
        ("next", np.int32),  # later message of the same flow; NONE: none yet
    ],
    align=True,
)
"""A message of a flow that is not yet delivered."""

FLOW = on_lines(
    [
        # what each packet and acknowledgement needs
        ("posted", np.int64),  # packets of all messages so far
        ("next_number", np.int64),  # of the next packet that was never sent, or of the rewound sender
        ("acknowledged", np.int64),  # all below this have arrived
        ("in_flight", np.int64),  # packets taken to be in the network
        ("window", np.float64),  # congestion window, packets; NDP: what may still be sent
        ("rate", np.float64),  # pace, wire bytes/s; inf: as fast as the NIC takes them
        ("next_send", np.int64),  # the pace allows no packet before, ps
        ("timeout_at", np.int64),  # retransmission timeout, ps; NEVER: nothing is outstanding
        ("alarm_at", np.int64),  # earliest entry of it on the agenda, ps
        ("last_send", np.int64),  # when the last packet was taken, ps
        ("send_last", np.int64),  # last packet of send_transfer
        ("forget_at", np.int64),  # first_transfer is not needed any more when packets beyond this are acknowledged
        ("law", np.int32),  # row of the laws
        ("ready", np.int32),  # 1: in the NIC's round
        ("next_ready", np.int32),
        ("source", np.int32),  # node
        ("first_link", np.int32),  # from the source onto the wire; NONE: within a host
        ("path", np.int32),  # into the table of paths; ~target: each switch looks up ways to it
        ("stages", np.int32),
        ("lost", np.int64),  # packets to send again
        ("smoothed", np.float64),  # round trip, ps; 0: none measured
        ("variation", np.float64),  # of the round trip, ps
        ("timeout", np.float64),  # ps
        ("recovering", np.int32),  # 1: until `recover` is acknowledged
        ("highest", np.int64),  # above all selectively acknowledged packets; go-back-N: all sent before it went back
        ("scanned", np.int64),  # all below this have been looked at for loss
        ("resend", np.int64),  # none below this is to be sent again
        ("renewed", np.int64),  # `next_number` when a lost packet was last sent again; NEVER: those were looked at
        ("recover", np.int64),
        ("send_transfer", np.int32),  # message of next_number
        ("first_transfer", np.int32),  # oldest message that is kept
        ("wire", np.int32),  # bytes of a full packet
        ("entropy", np.int32),  # in force
        ("first_telemetry", np.int64),  # HPCC: into the tables of telemetry
        ("tap", np.int32),  # of the series of its window, the next is that of its rate; NONE: not recorded
        ("draws", np.int32),  # random numbers drawn
        ("slot", np.int64),  # first byte of its scoreboard: `span` of the sender, then `span` of the receiver
        ("key", np.int64),  # that ECMP hashes, 32 bits
        # what receiving needs
        ("target", np.int32),  # node
        ("last_link", np.int32),  # from the target onto the wire: where acknowledgements leave
        ("reverse_path", np.int32),  # likewise; ~source
        ("exits", np.int32),
        ("endpoint", np.int32),  # receiving
        # the rest; `extended` adds what laws of congestion control keep
        ("connect", np.int64),  # wait of the first packet for the handshake, ps
        ("last_transfer", np.int32),
        ("route", np.int32),  # row of `fabricsim.records.program.ROUTE`
        ("first_stage", np.int32),  # servers before the wire
        ("first_exit", np.int32),  # servers after the wire
        ("hops", np.int32),  # links from source to target
        ("retransmissions", np.int64),
        ("timeouts", np.int64),
        ("line_rate", np.float64),  # of its first link, bytes/s
        ("base_rtt", np.float64),  # of a full packet and its acknowledgement, hosts included, on idle links, ps
        ("threshold", np.float64),  # slow start ends at this window, packets; EQDS: what is left of the first window
        # of the receiving half, if that pulls (NDP)
        ("pulls", np.int64),  # packets that PULLs have pulled so far
        ("rides", np.int32),  # 1: a pull may ride on the answer to the present packet; 2: it does
        ("pulls_due", np.int32),  # packets that are yet to be pulled
        ("next_pull", np.int32),  # flow whose turn comes after this one's
        ("in_round", np.int32),  # 1: it has a turn to come
    ],
)
"""The sending half of a flow: a TCP connection, a queue pair, a UET packet delivery context."""

RECEIVER = on_lines(
    [
        ("expected", np.int64),  # all below this have arrived
        ("highest", np.int64),  # above all that have arrived
        ("transfer", np.int32),  # message of `delivered`, or the one before it
        ("last", np.int64),  # last packet of the message that is being received, or less
        ("delivered", np.int64),  # messages of all numbers below this are delivered
        ("unacknowledged", np.int32),  # packets in sequence since the last ACK
        ("marked", np.int16),  # whether the last data packet was marked
        ("quick", np.int16),  # packets that are yet to be acknowledged at once
        ("due", np.int64),  # of a delayed ACK, ps; NEVER: none
        ("nack_at", np.int64),  # no NACK for the same gap before, ps
        ("nacked", np.int64),  # number that the last NACK asked for
        ("cnp_at", np.int64),  # no CNP before, ps
        ("stamp", np.int64),  # to echo, ps
        ("echo", np.int32),
        ("entropy", np.int32),
        ("received", np.int64),  # packets, copies too
        ("copies", np.int64),  # of these, received before
        ("first_held", np.int32),  # of the ACKs that the hosts' stacks still have: place in ANSWER + 1, 0: none
        ("last_held", np.int32),
        ("kept_at", np.int64),  # when the last packet was kept, ps
    ],
)
"""The receiving half of a flow."""

ANSWER = np.dtype(
    [
        ("time", np.int64),  # when it leaves, ps
        ("expected", np.int64),
        ("stamp", np.int64),  # ps
        ("echo", np.int32),
        ("entropy", np.int32),
        ("marked", np.int32),
        ("next", np.int32),  # of the same flow: place + 1, 0: none
    ],
    align=True,
)
"""An ACK that the stacks of both hosts still have; it has the place of its entry in the agenda."""

LAW = np.dtype(
    [
        ("law", np.int32),  # congestion control
        ("each_loss", np.int8),  # 1: it is told of each packet lost
        ("pulled", np.int8),  # 1: receivers pull, the window is what may still be sent
        ("recovery", np.int32),  # GO_BACK_N or SELECTIVE
        ("payload", np.int32),  # of a full packet, bytes
        ("overhead", np.int32),  # wire bytes beyond the payload
        ("ack_wire", np.int32),  # wire bytes of ACK, NACK and CNP
        ("data_class", np.int32),
        ("ack_class", np.int32),
        ("balance", np.int32),  # load-balancing rule
        ("one_path", np.int8),  # 1: all packets of a flow take one way
        ("renews", np.int8),  # 1: the sender draws entropies
        ("weighs", np.int8),  # 1: switches weigh the links that lead on
        ("entropies", np.int32),  # that a sprayer draws from
        ("ecn", np.int32),  # 1: packets may be marked
        ("plain", np.int32),  # 1: its law moves the window alone, and nothing is drawn for a packet
        ("counts", np.int32),  # 1: each `ack_every`-th packet in order causes an ACK, whatever time and marks
        ("span", np.int64),  # packets from the oldest outstanding to the newest, a power of two
        ("ack_every", np.int32),  # packets
        ("ack_delay", np.int64),  # of a delayed ACK, ps; 0: what is missing to `ack_every` is waited for
        ("quick_acks", np.int32),  # packets that are acknowledged at once after a pause, and at first
        ("stacks", np.int64),  # what the software of both hosts adds to a round trip, ps
        ("device_queue", np.int8),  # 1: the NIC takes all that windows allow at once, into a queue before the wire
        ("reordering", np.int32),  # packets above a missing one that prove its loss
        ("nack_interval", np.int64),  # between NACKs for one gap, ps
        ("cnp_interval", np.int64),  # between CNPs of a flow, ps; 0: none
        ("initial_timeout", np.int64),  # ps
        ("minimum_timeout", np.int64),  # ps
        ("maximum_timeout", np.int64),  # ps
        ("handshake", np.int32),  # round trips before the first packet
        ("sampled", np.int8),  # 1: the timer has measured the round trip of the handshake
        ("initial_window", np.float64),  # packets
        ("minimum_window", np.float64),  # packets
        ("maximum_window", np.float64),  # packets
        ("initial_threshold", np.float64),  # packets
        ("idle_restart", np.int64),  # TCP: idle time after which slow start begins anew, ps; NEVER: it does not
        ("pull_interval", np.int64),  # NDP: between pulls of a receiver, ps; 0: it does not pull
        ("ahead", np.int64),  # EQDS: packets that a receiver pulls beyond those that came
        ("network_rtt", np.float64),  # HPCC: base round trip of all flows, ps; 0: of each its own
    ],
    align=True,
)
"""Parameters of a transport; `extended` adds those of laws and load-balancing rules."""

TELEMETRY = np.dtype(
    [
        ("time", np.int64),  # when the packet was given to it, ps
        ("sent", np.int64),  # bytes
        ("drain", np.int64),  # time that its queue needs, ps
        ("ps_per_byte", np.float64),
        ("stamp", np.int64),  # of the packet, in the row of its first link, ps
    ],
    align=True,
)
"""In-band telemetry of one link (HPCC)."""


def extended(record: np.dtype[np.void], columns: Mapping[str, type]) -> np.dtype[np.void]:
    """Add columns to a record.

    `record`: ``FLOW`` or ``LAW``.
    `columns`: types by name, none of them a name of `record`.
    """
    own = [(name, record[name].type) for name in record.names or ()]
    return on_lines([*own, *columns.items()])
