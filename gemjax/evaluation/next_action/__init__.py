"""Model-based evidence: what a small language model's loss of the recorded next action says about a selection."""
