"""Long-term memory: a bank of texts searched with the Riemannian metric of CoreMem."""

from gemjax.memory.bank import METRICS, MemoryBank
from gemjax.memory.config import MemoryConfig
from gemjax.memory.hits import Hit, QueryVector, SessionHit
from gemjax.memory.record import Memory, Version

__all__ = ["METRICS", "Hit", "Memory", "MemoryBank", "MemoryConfig", "QueryVector", "SessionHit", "Version"]
