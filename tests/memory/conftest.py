from tests.memory.postgres import postgres_url

__all__ = ["postgres_url"]
