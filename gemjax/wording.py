"""How messages count things."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    Args:
        number: how many.
        noun: the singular.
        plural: the plural where it is not the singular with an s.

    Returns: `"1 row"`, `"2 rows"`, `"1,200 rows"`.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
