"""The command line, one-machine mode and offline replay."""
