"""Workloads and configurations of ASTRA-sim and SimAI."""
