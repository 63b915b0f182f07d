"""A seeded world in which the production code runs under faults, and checkers that judge it."""
