"""Media out: pacing, WHEP, recordings."""
