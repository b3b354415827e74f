"""Fuzzing of everything that reads what others wrote: ``make fuzz``, or ``python -m tests.fuzz --help``."""
