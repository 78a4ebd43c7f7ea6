"""An agent of Strands whose one tool does the scripted work."""

import strands

from tests.provider.script import work as run_step


def agent(provider, key, *tools):
    from strands.models.openai import OpenAIModel

    @strands.tool
    def work(step: int) -> str:
        """Do one step."""
        return run_step(step)

    model = OpenAIModel(client_args={"api_key": key, "base_url": f"{provider.url}/v1"}, model_id="scripted")
    return strands.Agent(
        model,
        tools=[work, *tools],
        system_prompt="Be exact.",
        callback_handler=None,
        conversation_manager=strands.agent.NullConversationManager(),
    )
