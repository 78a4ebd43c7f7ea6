"""Long tool results, shortened once: when they first enter a request, and never afterwards (ours, not the paper's).

Dropping a block later breaks the provider's prompt cache from there on; a result that goes out short from its first
request on never does. The original stays in the archive. Off by default: `GEMConfig(arrival=ArrivalConfig())`.
"""

from gemjax.history.arrival.config import ArrivalConfig
from gemjax.history.arrival.shorten import shortened

__all__ = ["ArrivalConfig", "shortened"]
