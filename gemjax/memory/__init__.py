"""Long-term memory: a bank of texts searched with the Riemannian metric of CoreMem."""

from gemjax.memory.bank import METRICS, MemoryBank
from gemjax.memory.config import MemoryConfig
from gemjax.memory.hits import Hit, QueryVector
from gemjax.memory.record import Memory

__all__ = ["METRICS", "Hit", "Memory", "MemoryBank", "MemoryConfig", "QueryVector"]
