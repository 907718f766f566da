"""The packet engine's main loop: programs and messages in time order, the network in windows between them."""

import numpy as np

from fabricsim.engine.packet.kernels.delivery import BATCH_DONE, INBOX_BITS, hand_over, report_arrival
from fabricsim.engine.packet.kernels.nic import pass_servers, time_alone
from fabricsim.engine.packet.kernels.sender import send_message
from fabricsim.engine.packet.kernels.window import has_room, next_times, open_window, run_window
from fabricsim.engine.program.dispatch import (
    COMPLETIONS,
    HORIZON,
    IDLE,
    JOB_DONE,
    LANES,
    NO_LANES,
    PAUSED,
    POST,
    RUN,
    START,
    handle,
    report,
)
from fabricsim.engine.program.lane import NO_EXTRA, SEND, message_bytes, run_lane, sent
from fabricsim.engine.program.queue import close_bucket, has_event_at, post
from fabricsim.engine.program.queue import next_time as next_event
from fabricsim.jit.compile import inlined, kernel
from fabricsim.records.program import NEVER

ROOM = 5
"""What `advance` stopped for, beside what stops the flow engine: a pool has to grow; come back."""
SMALLER = 6
"""A packet smaller than those that windows are made for is about to be sent: fix windows anew; come back."""
PIECE = np.int64(19)
"""Kind of an event: the next piece of a message within a host; target: its flow."""
SEGMENT = 16_384  # bytes: so much of what GPUs of one host exchange passes its servers at once


@kernel
def _queue_within_host(sim, net, number, size, owner):
    """Give a flow within a host a message, which follows those before it."""
    world, flow, now = net.world[0], net.flows[number], sim.world[0].now
    at = np.int64(world.free_transfer)
    transfer = net.transfers[at]
    world.free_transfer = transfer.next
    world.transfers_left -= 1
    transfer.next, transfer.last, transfer.owner = -1, size, owner
    if flow.posted == 0:
        flow.first_transfer = at
        post(sim, max(now, np.int64(flow.next_send)), PIECE, number, NO_EXTRA)
    else:
        net.transfers[flow.last_transfer].next = at
    flow.last_transfer = at
    flow.posted += 1


@kernel
def _pass_piece(sim, net, number):
    """Pass the next piece of a message through the servers of its host.

    The one behind it is given to them when it would arrive right behind, had it nothing else to wait for: so flows that
    share a server take turns.
    """
    world, flow, now = net.world[0], net.flows[number], sim.world[0].now
    at = np.int64(flow.first_transfer)
    transfer = net.transfers[at]
    first, stages = np.int64(flow.first_stage), np.int64(flow.stages)
    piece = min(np.int64(transfer.last), SEGMENT) if stages > 0 else np.int64(transfer.last)
    alone, slowest = time_alone(net, first, stages, piece)
    done = pass_servers(net, first, stages, piece, now)
    flow.next_send = done - alone + slowest
    transfer.last -= piece
    if transfer.last == 0:
        report_arrival(sim, np.int64(transfer.owner), done + sim.routes[flow.route].latency, now)
        flow.first_transfer = transfer.next
        transfer.next = world.free_transfer
        world.free_transfer = at
        world.transfers_left += 1
        flow.posted -= 1
    if flow.posted > 0:
        post(sim, np.int64(flow.next_send), PIECE, number, NO_EXTRA)


@kernel
def _start(sim, net, number, size, owner):
    """Begin a message on a flow."""
    world = sim.world[0]
    now = world.now
    flow = net.flows[number]
    world.messages += 1
    if flow.first_link >= 0:
        send_message(net, number, size, owner, now)
        return
    _queue_within_host(sim, net, number, size, owner)


@kernel
def _run_lane(sim, net, lane, connection):
    """Let a lane go on until it must wait; `connection` is that on which it is due to send, or NONE.

    A lane does not wait for its message to leave: the flow keeps messages in order.
    """
    world = sim.world[0]
    connections = sim.connections
    while True:
        if connection < 0:
            connection = run_lane(sim, lane)
            if connection < 0:
                return
            overhead = sim.routes[connections[connection].route].overhead
            if overhead > 0:
                post(sim, world.now + overhead, SEND, lane, connection)
                return
        size = message_bytes(sim, lane, connection)
        number = np.int64(connections[connection].flow)
        inbox = np.int64(connections[connection].inbox)
        receiver = sent(sim, lane, connection)
        owner = (receiver << INBOX_BITS) | inbox
        # a part of no bytes, of a buffer smaller than its group, is waited for as well: one byte stands for its headers
        _start(sim, net, number, max(size, np.int64(1)), owner)
        connection = np.int64(-1)


@inlined
def _act_on(sim, net, todo, target, extra):
    """Do on the network what the programs ask for at this time."""
    if todo in (RUN, START):
        connection = extra if todo == START else np.int64(-1)
        _run_lane(sim, net, target, connection)
    elif todo == POST:
        number = np.int64(sim.routes[sim.messages[target].route].flow)
        size = sim.messages[target].bytes
        _start(sim, net, number, size, -1 - target)
    elif todo == PIECE:
        _pass_piece(sim, net, target)
    elif todo == BATCH_DONE:
        report(sim, JOB_DONE, target)


@kernel
def advance(horizon, budget, sim, net):
    """Advance until something is in the outbox, the horizon is reached, or nothing is left.

    `horizon`: nothing after this time (ps) is done.
    `budget`: stop when this many events are used up, so that somebody can be told of the progress.
    Returns: IDLE, HORIZON, COMPLETIONS, LANES, PAUSED, ROOM or SMALLER.
    """
    world = sim.world[0]
    network = net.world[0]
    budget += world.events
    hops = network.data_hops + network.ack_hops + network.due
    while True:
        if network.open:
            if not run_window(net):
                return ROOM
            hand_over(sim, net)
            done = network.data_hops + network.ack_hops + network.due
            world.events += done - hops
            hops = done
            if world.events >= budget:
                return PAUSED
        now = next_event(sim)
        zero, one = next_times(net)
        first = min(zero, one)
        if min(now, first) == NEVER:
            return IDLE
        if min(now, first) > horizon:
            return HORIZON
        if first < now:
            if network.window == 0:
                return SMALLER
            open_window(net, zero, one, min(now, horizon + 1))
            continue
        world.now = now
        while has_event_at(sim, now):
            if not has_room(net):
                return ROOM
            todo, target, extra = handle(sim)
            if todo == NO_LANES:
                return LANES
            _act_on(sim, net, todo, target, extra)
        close_bucket(sim, now)
        if world.outbox > 0:
            return COMPLETIONS
        if world.events >= budget:
            return PAUSED
