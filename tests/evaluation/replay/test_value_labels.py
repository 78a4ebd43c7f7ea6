"""The labels still belong to what grounding counts, and give the precision that docs/replay.md states."""

import pytest

from tests.evaluation.replay.value_labels import labelled


@pytest.mark.data
def test_the_precision_of_values_is_what_the_page_states(data_dir):
    rows = labelled(data_dir / "trajectories" / "openai")
    # A value that the definition no longer counts would be missing here, and the page would be wrong.
    assert len(rows) == 322
    assert sum(copied for _, _, copied in rows) == 193

    def share(shown):
        own = [copied for _, seen, copied in rows if seen == shown]
        return sum(own) / len(own)

    assert share(True) > 2 * share(False)
