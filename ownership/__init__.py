"""Who owns a live: the transactional store and the protocol that runs in it."""
