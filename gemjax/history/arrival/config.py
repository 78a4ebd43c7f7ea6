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
        files: a file that a call reads by its path has so many times the limit, and keeps so many times more: edits
            have to match its lines, and later calls name what stands in it.

    Raises: `ConfigError`, naming the argument.
    """

    limit: int = 2_000
    keep: int = 1_000
    files: int = 4

    def __post_init__(self) -> None:
        for field in ("limit", "keep"):
            value = getattr(self, field)
            if type(value) is not int or not _LEAST <= value < 2**31:
                raise ConfigError(f"{field} must be a whole number of at least {_LEAST} characters, got {value!r}")
        if type(self.files) is not int or not 1 <= self.files <= 1_000:
            raise ConfigError(f"files must be a whole number from 1 to 1000, got {self.files!r}")
        if self.keep > self.limit:
            raise ConfigError(f"keep must be at most limit ({self.limit}), got {self.keep!r}")
