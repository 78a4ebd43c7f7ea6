"""An acting agent without a language model: AgentDojo's tasks under each way of shortening the history."""
