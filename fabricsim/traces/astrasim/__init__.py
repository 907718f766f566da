"""Text workloads and configurations of ASTRA-sim and SimAI, read."""
