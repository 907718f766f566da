from __future__ import annotations

import pytest

from fabricsim.scenario.cluster import Gpu


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    return Gpu.model_validate(
        {
            "name": "test",
            "peak": {"fp16": "312TFLOPS", "bf16": "312TFLOPS"},
            "memory": "40GiB",
            "memory_rate": "1555GBps",
            "gemm_efficiency": 0.8,
            "memory_efficiency": 0.85,
        }
    )
