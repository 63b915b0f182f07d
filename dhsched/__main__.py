"""`python -m dhsched`."""

from dhsched.cli import main

main()
