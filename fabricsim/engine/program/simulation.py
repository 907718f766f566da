"""All tables of programs and of the flow engine, handed through the kernels as one pointer."""

from typing import Any, ClassVar

import numpy as np

from fabricsim.jit.tables import Tables
from fabricsim.records import program as t


class Simulation(Tables):
    """One simulated fabric.

    The packet engine has programs, calls, routes and messages here too, and its network beside it.
    """

    TABLES: ClassVar[dict[str, np.dtype[Any]]] = {
        "world": t.WORLD,  # one row
        # Events
        "events": t.EVENT,
        "buckets": t.BUCKET,
        # Programs
        "ops": t.OP,
        "spans": t.SPAN,  # of ops
        "successors": np.dtype(np.int64),  # ops
        "jobs": t.JOB,
        "job_of_op": np.dtype(np.int64),
        "messages": t.MESSAGE,
        "outbox": t.COMPLETION,
        # Collectives
        "calls": t.CALL,
        "communicators": t.COMMUNICATOR,
        "templates": t.TEMPLATE,
        "scripts": t.SCRIPT,
        "steps": t.STEP,
        "connections": t.CONNECTION,
        "sources": np.dtype(np.int64),  # sending lane of each inbox of a communicator, within its channel; NONE: none
        "lanes": t.LANE,
        "inboxes": t.INBOX,
        "free_blocks": np.dtype(np.int64),  # first of each class: of lanes, then of inboxes
        # Ways through the network
        "routes": t.ROUTE,
        "moderation": t.MODERATION,
        "slowdowns": np.dtype(np.int64),  # histogram over all messages
        # Flows
        "resources": t.RESOURCE,
        "hops": t.HOP,
        "flows": t.FLOW,
        "legs": t.LEG,
        "tree": np.dtype(np.int64),  # tournament over the times at which flows finish, ps
        "series": t.SERIES,
        "begun": np.dtype(np.int32),  # flows that began in this instant
        "touched": np.dtype(np.int32),  # resources that lost a flow in this instant
        "members": np.dtype(np.int32),  # flows whose rates a solve may change
        "heap": t.HEAP,
    }
