"""The papers' tables that need no commercial model, on data the caller points at."""
