"""What the user says inside tool results is recognised, and kept."""

import pytest

from gemjax import GEMConfig, HistoryCompressor
from gemjax.errors import ConfigError
from gemjax.history import DEFAULT_RULES, PAPER_RULES, UserWords
from gemjax.history.answers import asks_the_user, user_words
from tests.conftest import HashingEncoder
from tests.history.requests import chat_block

ASKING = [
    "AskUserQuestion", "ask_user_question", "ASK_USER", "request_user_input", "ask_followup_question",
    "askFollowUpQuestion", "mcp__ide__ask_human", "human", "human_input", "get_human_feedback",
    "get_user_input", "wait_for_user_input", "message_ask_user", "ask_clarification",
    "ask_clarifying_question", "clarify", "question", "ask_questions", "vscode_askQuestions", "ExitPlanMode",
    "exit_plan_mode", "plan_mode_respond", "request_approval", "confirm_with_user", "UserInput",
    "functions.request_user_input", "prompt_user", "askuserquestion", "requestuserinput", "await_user_reply",
    "ask_user_for_confirmation", "human_in_the_loop", "consult_user", "AskQuestion",
]  # fmt: skip
NOT_ASKING = [
    "bash", "get_user", "get_user_details", "find_user_id_by_email", "update_user", "create_user",
    "list_users", "ask_llm", "search", "read_file", "Task", "TaskCreate", "transfer_to_human_agents",
    "message_user", "send_message_to_user", "notify_user", "get_input_schema", "request_refund", "answer",
    "submit_answer", "user_profile", "delete_user_input_file", "run_query", "questionnaire_export",
    "fetch_questions_for_exam", "WebFetch", "think", "review_code", "approve_refund",
]  # fmt: skip


@pytest.mark.parametrize("name", ASKING)
def test_tools_that_ask_the_user(name):
    assert asks_the_user(name)


@pytest.mark.parametrize("name", NOT_ASKING)
def test_tools_that_do_not(name):
    assert not asks_the_user(name)


SAID = [
    "The user doesn't want to proceed with this tool use. The tool use was rejected",
    "The user doesn't want to take this action right now. STOP what you are doing",
    "exec command rejected by user",
    '{"output":"rejected by user","metadata":{"exit_code":1}}',
    "User rejected the tool call for `send_mail` with id 3",
    "Permission denied by the user: not on production",
    "The user denied this operation and provided the following feedback:\n<feedback>\nuse staging\n</feedback>",
    "The user has declined to run this tool. DO NOT attempt to call this tool again.",
    "Error: user cancelled MCP tool call",
    "aborted by user after 3.1s",
    "[Operation Cancelled] Reason: User cancelled the operation.",
    "User has answered your questions: \"Which?\"=\"staging\"",
    "User has approved your plan. You can now start coding.",
    "Permission to use Bash with command rm -rf x has been denied.",
    "Tool execution was not approved.",
    "Action rejected by the human operator",
    "[Request interrupted by user for tool use]",
]  # fmt: skip
NOT_SAID = [
    "",
    "ls: cannot open directory '/root': Permission denied",
    "src/hooks.py:41:    raise PermissionError('rejected by user')",
    "12\t    return 'The user has answered your question'",
    "# The user denied this operation\nx = 1",
    "user created: id 7",
    "The users table has 3 rows",
    "useradd: user 'bob' already exists",
    "def reject():\n    print('User rejected the tool call')",
    "a\nb\nc\nd\ne\nf\nrejected by user",
]


@pytest.mark.parametrize("text", SAID)
def test_refusals_and_answers_in_a_tools_words(text):
    assert "Bash" in user_words([("Read", "x"), ("Bash", text)])


@pytest.mark.parametrize("text", NOT_SAID)
def test_what_only_looks_like_one(text):
    assert user_words([("Bash", text)]) == ""


def test_an_unanswered_question_says_nothing():
    assert user_words([("AskUserQuestion", " \n")]) == ""
    assert user_words([("AskUserQuestion", "both")]) == "what the user answered to AskUserQuestion"


def history(at: set[int], name: str, answer: str) -> dict:
    messages: list[dict] = [{"role": "user", "content": "Repair the import."}]
    for i in range(40):
        turn, result = chat_block(i, result=answer if i in at else f"line {i}\n" * 40)
        if i in at:
            turn["tool_calls"][0]["function"]["name"] = name
        messages += [turn, result]
    return {"model": "m", "messages": messages}


@pytest.mark.parametrize(
    ("name", "answer"), [("ask_user", "staging only"), ("bash", "The user denied this: use staging")]
)
def test_what_the_user_said_is_forwarded_whatever_else_is_dropped(name, answer):
    request = history({4, 9, 20}, name, answer)
    gem = HistoryCompressor(HashingEncoder(), GEMConfig(capacity=3, encoder_timeout=None))
    result = gem.compress(request)
    assert result.status == "compressed" and {4, 9, 20} <= set(result.forwarded)
    assert all("user" in result.blocks[i].protected for i in (4, 9, 20))
    assert [b.index for b in result.blocks if "user" in b.protected] == [4, 9, 20]


def test_the_papers_rules_are_without_it():
    assert DEFAULT_RULES[0].name == "user" and "user" not in [r.name for r in PAPER_RULES]


def test_a_limit_keeps_the_most_recent():
    rules = (UserWords(keep=2),)
    gem = HistoryCompressor(HashingEncoder(), GEMConfig(rules=rules, capacity=1, encoder_timeout=None))
    result = gem.compress(history({4, 9, 20}, "ask_user", "yes"))
    assert [b.index for b in result.blocks if "user" in b.protected] == [9, 20]
    with pytest.raises(ConfigError, match="keep"):
        UserWords(keep=0)
