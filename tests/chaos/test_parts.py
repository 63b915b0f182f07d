"""The suite's own parts: what it writes down, when, and what it makes of it."""
