"""Faults on real processes under a workload, judged by the checker. See README.md."""
