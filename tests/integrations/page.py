"""The page whose blocks the tests run."""

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "integrations.md").read_text("utf-8")
