"""Real processes on a real broker under faults, judged by the simulator's checkers."""
