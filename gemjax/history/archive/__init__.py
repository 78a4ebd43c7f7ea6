"""What the compressor dropped, kept so that an agent can ask for it again."""

from gemjax.history.archive.archives import Archives
from gemjax.history.archive.recall import Recall, Recalled

__all__ = ["Archives", "Recall", "Recalled"]
