"""Which results are shortened when they come, and to what length."""

import dataclasses

from gemjax.errors import ConfigError

_LEAST = 200


@dataclasses.dataclass(frozen=True, slots=True)
class ArrivalConfig:
    """Settings of the shortening on arrival.

    Args:
        limit: results of at most so many characters stay as they are.
        keep: characters that are kept of a longer one, about; marks for what is left out come on top.

    Raises: `ConfigError`, naming the argument.
    """

    limit: int = 3_000
    keep: int = 1_500

    def __post_init__(self) -> None:
        for field in ("limit", "keep"):
            value = getattr(self, field)
            if type(value) is not int or not _LEAST <= value < 2**31:
                raise ConfigError(f"{field} must be a whole number of at least {_LEAST} characters, got {value!r}")
        if self.keep > self.limit:
            raise ConfigError(f"keep must be at most limit ({self.limit}), got {self.keep!r}")
