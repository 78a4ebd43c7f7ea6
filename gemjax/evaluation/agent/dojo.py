"""AgentDojo's suites as an environment without a language model: tools, tasks, their ground-truth calls and checks.

AgentDojo (Debenedetti et al. 2024) imports the SDK of every provider. Only its tools, environments and checks are
needed here, so four of its modules are stood in for by bare ones; all that is used is the benchmark's own.
"""

import dataclasses
import importlib
import importlib.util
import sys
import types
from typing import Any

from gemjax.errors import ConfigError

VERSION = "v1.2.2"
SUITES = ("workspace", "travel", "banking", "slack")


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """One call that was run: its name, arguments, and the text a model would get."""

    name: str
    arguments: dict[str, Any]
    text: str


class World:
    """One task in its own copy of its suite's environment, so that its check judges this task and no other."""

    def __init__(self, suite: Any, task: Any, runtime: Any, as_text: Any) -> None:
        self.prompt: str = task.PROMPT
        self._task = task
        self._runtime = runtime
        self._as_text = as_text
        self._env = task.init_environment(suite.load_and_inject_default_environment({}))
        self._before = self._env.model_copy(deep=True)
        self._made = task.ground_truth(self._env)
        self._trace: list[Any] = []

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """The ground-truth calls: name and arguments."""
        return [(c.function, dict(c.args)) for c in self._made]

    def run(self, name: str, arguments: dict[str, Any]) -> Shown:
        """Run a call in the task's environment."""
        result, error = self._runtime.run_function(self._env, name, arguments)
        made = importlib.import_module("agentdojo.functions_runtime").FunctionCall
        self._trace.append(made(function=name, args=arguments))
        return Shown(name, arguments, error or self._as_text(result))

    def changes_nothing(self, name: str, arguments: dict[str, Any]) -> bool:
        """Whether running this call now would leave the environment as it is."""
        twin = self._env.model_copy(deep=True)
        self._runtime.run_function(twin, name, arguments)
        return bool(twin.model_dump() == self._env.model_dump())

    def passed(self, answer: str | None = None) -> bool:
        """The benchmark's own check of what was done; None gives the answer that it knows to be right."""
        out = self._task.GROUND_TRUTH_OUTPUT if answer is None else answer
        by_trace = self._task.utility_from_traces(out, self._before, self._env, self._trace)
        return bool(self._task.utility(out, self._before, self._env) if by_trace is None else by_trace)


class Suite:
    """One suite: its tools in the chat format, and its tasks."""

    def __init__(self, name: str) -> None:
        """Raises: `ConfigError` if the suite is unknown or AgentDojo is not installed."""
        if name not in SUITES:
            raise ConfigError(f"suite must be all or one of {', '.join(SUITES)}, got {name!r}")
        _stand_in()
        self.name = name
        self._suite = importlib.import_module("agentdojo.task_suite.load_suites").get_suites(VERSION)[name]
        self._runtime = importlib.import_module("agentdojo.functions_runtime").FunctionsRuntime(self._suite.tools)
        self._as_text = importlib.import_module("agentdojo.agent_pipeline.tool_execution").tool_result_to_str

    def worlds(self) -> list[World]:
        """A new world for each of the user's tasks."""
        return [World(self._suite, t, self._runtime, self._as_text) for t in self._suite.user_tasks.values()]

    def tools(self) -> list[dict[str, Any]]:
        """The tools' definitions."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters.model_json_schema(),
                },
            }
            for tool in self._suite.tools
        ]


def missing() -> str:
    """Why AgentDojo cannot be used; empty if it can."""
    needed = ("agentdojo", "pydantic", "yaml", "deepdiff", "docstring_parser", "email_validator")
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    return (
        f"not installed: {', '.join(absent)}; run `pip install --no-deps agentdojo==0.1.35` (what it declares is heavy "
        "and unneeded) and `pip install 'gemjax[agentdojo]'`"
    )


def _stand_in() -> None:
    why = missing()
    if why:
        raise ConfigError(f"AgentDojo is {why}")
    if "agentdojo.agent_pipeline" in sys.modules:
        return
    spec = importlib.util.find_spec("agentdojo")
    assert spec is not None and spec.submodule_search_locations
    root = spec.submodule_search_locations[0]
    folder = f"{root}/agent_pipeline"
    bare: dict[str, tuple[str | None, dict[str, Any]]] = {
        "agentdojo.agent_pipeline": (folder, {}),
        "agentdojo.agent_pipeline.llms": (f"{folder}/llms", {}),
        "agentdojo.agent_pipeline.llms.google_llm": (None, {"EMPTY_FUNCTION_NAME": "<empty-function>"}),
        "agentdojo.logging": (None, {"Logger": type("Logger", (), {"get": classmethod(lambda cls: None)})}),
    }
    for name, (path, names) in bare.items():
        module = types.ModuleType(name)
        module.__dict__.update(names)
        if path is not None:
            module.__path__ = [path]
        sys.modules[name] = module
