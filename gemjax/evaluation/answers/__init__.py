"""Answers from a memory: one generator, several ways to choose what it reads, scored in one run."""
