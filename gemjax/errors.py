"""The package's exceptions: one root, so that a caller can catch everything gemjax raises on purpose."""


class GemjaxError(Exception):
    """Root of the tree; every other exception here is a child of it."""


class ConfigError(GemjaxError, ValueError):
    """A configuration value is out of range or contradicts another. Raised at construction."""


class RequestError(GemjaxError, ValueError):
    """A request cannot be read or is invalid for its provider. Raised only where no agent waits (`strict`, CLI)."""


class CallbackError(GemjaxError, RuntimeError):
    """What the caller passed in to be called (`keep`, a rule, a policy) raised or returned something of no use."""


class EncoderError(GemjaxError, RuntimeError):
    """An encoder raised, or returned vectors of a wrong shape, dtype or value."""


class WeightsError(GemjaxError, RuntimeError):
    """Model weights are missing, damaged, of another digest or of an unsupported architecture."""


class StateError(GemjaxError, ValueError):
    """A saved state cannot be loaded (wrong version, damaged, of another configuration). Nothing was changed."""


class MemoryBankError(GemjaxError, ValueError):
    """A call on a memory bank cannot be carried out (ids, vectors, texts, k). The bank is unchanged."""


class GenerationError(GemjaxError, RuntimeError):
    """A generator gave no answer: endpoint away, slow, refused or out of quota, or a prompt beyond its context."""
