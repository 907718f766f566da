"""ECMP: the hash of a flow chooses among equally short ways (RFC 2992), so that all its packets take the same."""

from fabricsim.scenario.balancing import LoadBalancing


class Ecmp(LoadBalancing):
    """By the hash of the flow."""

    overtaking = False
    one_path = True


BALANCING = Ecmp
