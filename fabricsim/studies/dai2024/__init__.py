"""GPT-2, BERT and T5 over TCP 10G, IPoIB 100G and RDMA 100G, after Dai et al., IEEE Micro 44(2), 2024."""

from fabricsim.studies.dai2024 import packets, study
from fabricsim.studies.frame.study import Study

_ON_PACKETS = Study("dai2024-packets", packets.__doc__ or "", packets.validate, engine="packet")
STUDY = Study("dai2024", study.__doc__ or "", study.validate, study.pictures, others=(_ON_PACKETS,))
