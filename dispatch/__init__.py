"""Stateless peer replicas that open, place, move and close lives."""
