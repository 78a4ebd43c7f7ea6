"""A made-up task for the actor."""

from typing import Any

from gemjax.evaluation.agent import dojo


class Diary:
    """A world with two calls: reading shows a secret, and telling needs it. Reading may use the page up."""

    prompt = "Tell the secret."

    def __init__(self, used_up: bool = False) -> None:
        self.used_up = used_up
        self.told: list[str] = []
        self.reads = 0

    calls = [("read", {"page": 7}), ("tell", {"secret": "swordfish-99"})]  # noqa: RUF012

    def run(self, name: str, arguments: dict[str, Any]) -> dojo.Shown:
        if name == "read":
            self.reads += 1
            return dojo.Shown(name, arguments, "the secret is\n  swordfish-99")
        self.told.append(arguments["secret"])
        return dojo.Shown(name, arguments, "ok")

    def changes_nothing(self, name: str, arguments: dict[str, Any]) -> bool:
        return not self.used_up

    def passed(self) -> bool:
        return self.told == ["swordfish-99"]
