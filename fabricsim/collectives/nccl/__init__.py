"""NCCL's choice of algorithm, protocol and channels, by NCCL's own cost model.

`tuning` holds the constants of each version, `graph` what NCCL's topology search finds on a cluster, `cost` the
predicted time of each algorithm and protocol, `choice` the fastest of those that are allowed. Times are NCCL's own
estimates: it chooses by them, and no simulation uses them as results.
"""
