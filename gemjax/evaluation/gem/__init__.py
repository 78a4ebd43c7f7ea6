"""The tables of the GEM paper that need no acting model, on recorded trajectories that the caller points at."""
