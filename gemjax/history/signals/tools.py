"""Tool calls: what kind of tool a name stands for, and what its arguments say about files, pages and records.

The names are those of Claude Code, Codex, OpenHands, SWE-agent, pi, aider, deer-flow, Gemini CLI, Cursor and Cline, of
MCP servers (`mcp__server__verb_object`), and the verb-first names of business APIs (`cancel_reservation`).
"""

import re
from typing import Any

from gemjax.history.records import ToolCall
from gemjax.history.signals import python, shell
from gemjax.history.signals.arguments import TEXT, fields, strings
from gemjax.history.signals.effects import Effects
from gemjax.history.signals.patches import patched_paths
from gemjax.history.signals.paths import is_url, looks_like_path, normalise
from gemjax.history.signals.sources import normalise_url, printable, search_key
from gemjax.history.signals.tables import word_set
from gemjax.history.signals.work import Work

_SHELL_TOOLS = word_set(
    """
    bash shell sh zsh terminal cmd command run run_command run_shell run_shell_command run_terminal_cmd run_bash
    run_in_terminal execute_command execute_bash execute_shell exec exec_command shell_command local_shell cmd_run
    container_exec powershell pwsh execute run_terminal_command bash_command computer_terminal shell_exec run_cmd
    bash_tool execute_shell_command
    """
)
_PYTHON_TOOLS = word_set(
    """
    python ipython run_ipython execute_python run_python python_repl python_interpreter code_interpreter jupyter
    execute_ipython_cell ipython_run_cell execute_code run_code notebook_run_cell execute_cell repl python_exec
    """
)
_EDIT_TOOLS = word_set(
    """
    write edit create insert replace append patch write_file edit_file create_file insert_content replace_in_file
    write_to_file multi_edit multiedit str_replace str_replace_editor str_replace_based_edit_tool text_editor
    apply_patch apply_diff apply_edit notebook_edit edit_notebook search_replace search_and_replace delete_file
    remove_file move_file rename_file copy_file file_write file_edit file_editor undo_edit insert_text
    insert_line save_file append_file append_to_file overwrite_file patch_file modify_file update_file touch mkdir
    make_dir create_directory delete_directory make_directory file_str_replace edit_block write_files new_file
    edit_existing_file create_new_file replace_file_content multi_replace_file_content propose_code insert_edit
    insert_edit_into_file replace_string_in_file create_or_update_file memory replace_lines insert_lines
    delete_lines write_document str_replace_file download_file
    """
)
_READ_TOOLS = word_set(
    """
    read read_file view view_file cat open open_file get_file load_file read_files read_many_files show_file
    get_file_contents read_document read_text_file read_multiple_files file_read read_notebook notebook_read
    view_code_item read_lines get_document extract_text read_pdf read_resource view_image
    """
)
_FETCH_TOOLS = word_set(
    """
    web_fetch webfetch fetch fetch_url get_url browse open_url visit goto navigate visit_page visit_website scrape
    crawl read_url read_url_content read_webpage download extract web_extract browser browser_navigate open_page
    web_read scrape_url scrape_webpage fetch_webpage http_get url_fetch get_page_content
    """
)
_SEARCH_TOOLS = word_set(
    """
    web_search websearch google_search search_web search internet_search tavily_search brave_web_search bing_search
    search_internet duckduckgo_search exa_search image_search search_docs search_wikipedia search_papers arxiv_search
    news_search search_google google semantic_search knowledge_search retrieve retrieval search_query web_search_tool
    file_search search_documents search_knowledge_base
    """
)
_LIST_TOOLS = word_set("grep glob ls list_dir list_directory list_files find find_files search_files ripgrep tree")
_QUIET_TOOLS = re.compile(
    r"(?:.*_)?(?:todos?|plans?|think|thought|thinking|reasoning|reflect|notes?_to_self|ask_\w{1,60}|clarification|calculate|"
    r"calculator|stdin|write_stdin|final_answer|finish|wait|sleep|task_progress|sequentialthinking)(?:_write|_read|_list)?"
)
_READ_VERBS = word_set(
    """
    get list search find read fetch check view show query describe count calculate think is has wait ask lookup look
    browse browser compare estimate validate verify inspect explain summarize analyze analyse test run perform select
    retrieve load download open navigate click scroll type press hover screenshot tool skill task agent discover grep
    """
)
_RUNNING_VERBS = word_set("run perform test execute validate verify check skill analyze analyse")
_SHOWING_VERBS = _READ_VERBS - _RUNNING_VERBS
_AGENTS = word_set("task agent subagent delegate")
_CHANGE_VERBS = word_set(
    """
    update cancel book create delete modify exchange return send set add remove transfer submit post put patch edit
    insert append replace rename move copy upload publish deploy install uninstall enable disable start stop restart
    schedule reschedule assign unassign approve reject close reopen merge push commit place pay refund charge purchase
    buy reply comment invite archive restore reset register save store write apply mark toggle grant revoke block
    unblock subscribe unsubscribe confirm complete make issue release change reserve redeem report resolve record
    """
)
# In order of preference: the first path that a call names is the one it is about.
_PATH_FIELDS = (
    *("file_path", "path", "filename", "file", "filepath", "notebook_path", "target_file", "absolute_path"),
    *("relative_path", "file_name", "abs_path", "relative_workspace_path", "TargetFile", "AbsolutePath", "uri"),
    *("paths", "files", "filepaths", "file_paths", "filenames", "dir", "directory", "folder", "dir_path"),
    *("source", "destination", "old_path", "new_path", "src", "dst", "from", "to"),
    *("input_file", "output_file", "output_path"),
)
_TARGET_FIELDS = ("destination", "new_path", "dst", "to", "output_file", "output_path")
_COMMAND_FIELDS = ("command", "cmd", "script", "commands", "bash_command", "CommandLine", "input", "code", TEXT)
_CODE_FIELDS = ("code", "source", "script", "python_code", "command", "input", TEXT)
_DIRECTORY_FIELDS = ("workdir", "cwd", "working_directory", "working_dir", "Cwd")
_URL_FIELDS = ("url", "urls", "uri", "link", "href", "website_url", "page_url")
_QUERY_FIELDS = ("query", "q", "search_query", "queries", "search_term", "question", "keywords", "pattern", "text")
_VIEW_COMMANDS = word_set("view read open show cat list search find_file goto")
_ID_FIELD = re.compile(r"(?:\w*_)?(?:id|ids|uuid|number|slug|key|no)|\w+Id", re.ASCII)
_NAME_FIELDS = ("entity", "username", "user", "email", "name", "title", "to", "recipient", "channel", "topic", "repo")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_EDIT_RANGE = re.compile(r"edit\s+\d+:\d+\s*\n")
_EDITING_CELL = re.compile(r"\s{0,20}(?:edit_file|create_file|append_file|insert_content)\w{0,30}\(")
_GOES_TO = re.compile(r"\bgoto\(\s{0,8}['\"`](https?://[^'\"`\s]{1,500})")
_MAX_NAME = 128
_CALL, _FIELD = 100, 40  # units of work that a call costs, and each of its fields
_RESULT_FILE = re.compile(r"\s*\[File: (\S{1,300}) \(\d+ lines")


def canonical(name: str) -> str:
    """`mcp__github__createIssue`, `functions.create-issue` -> `create_issue`: what the tool itself is called."""
    name = re.split(r"__|[.:/]", name[:_MAX_NAME])[-1] or name[:_MAX_NAME]
    return _CAMEL.sub("_", name).lower().replace("-", "_").replace(" ", "_")


def effects_of(call: ToolCall, output: str, work: Work | None = None) -> Effects:
    """What one call writes, touches and reads.

    Args:
        call: the call.
        output: beginning of its result; SWE-agent's `edit` names the edited file only there.
        work: the block's account; None for one as large as an account can be.

    Raises: `WorkSpent` when the account is empty.
    """
    effects = Effects(work)
    name = canonical(call.name)
    effects.work.spend(_CALL + len(call.arguments) // 2)
    given = fields(call.arguments, effects.work)
    effects.work.spend(_FIELD * len(given))
    cwd = next((normalise(v) for f in _DIRECTORY_FIELDS if isinstance(v := given.get(f), str)), "")
    if name in _EDIT_TOOLS or name.endswith(("_str_replace_editor", "_edit_file", "_write_file", "_apply_patch")):
        _edit(name, given, effects, cwd)
    elif name in _SHELL_TOOLS or (isinstance(given.get("command"), str | list) and "code" not in given):
        _shell(given, effects, cwd, output)
    elif name in _PYTHON_TOOLS:
        _python(given, effects, cwd)
    elif _QUIET_TOOLS.fullmatch(name):
        effects.quotes = True
    else:
        _other(name, given, effects, cwd)
    return effects


_RANK = {field: rank for rank, field in enumerate(_PATH_FIELDS)}


def _path_values(given: dict[str, Any]) -> list[str]:
    named = sorted((field for field in given if field in _RANK), key=_RANK.__getitem__)
    return [value for field in named for value in strings(given[field]) if value]


def _edit(name: str, given: dict[str, Any], effects: Effects, cwd: str) -> None:
    effects.single = effects.quotes = True  # the result is a message, then perhaps lines of the edited file
    command = given.get("command")
    paths = [p for p in _path_values(given) if not is_url(p)]
    if isinstance(command, str) and command in _VIEW_COMMANDS:
        for path in paths:
            effects.read(path, cwd)
        return
    if name == "copy_file":
        paths = [p for f in _TARGET_FIELDS for p in strings(given.get(f))] or paths
    for text in (given.get("input"), given.get("patch"), given.get("diff"), given.get("patchText"), given.get(TEXT)):
        if isinstance(text, str) and not paths:
            paths = patched_paths(text)
    for value in _lists_of_edits(given):
        paths += strings(value)
    written = [effects.write(path, cwd) for path in paths]
    if not any(written):
        effects.write_artifact(f"{name}()")


def _lists_of_edits(given: dict[str, Any]) -> list[Any]:
    return [given[f] for f in ("edits", "changes", "operations") if isinstance(given.get(f), list)]


def _shell(given: dict[str, Any], effects: Effects, cwd: str, output: str) -> None:
    value = next((given[f] for f in _COMMAND_FIELDS if isinstance(given.get(f), str | list)), "")
    if isinstance(value, list):
        words = [w for w in value[:500] if isinstance(w, str)]
        if len(words) == 1 or any(" " in w for w in words[:1]):  # a list of whole commands
            shell.analyse("\n".join(words), effects, cwd)
        else:
            shell.analyse_words(words, effects, cwd)
    elif _EDIT_RANGE.match(value):
        effects.write_artifact(shell.OPEN_FILE)
    elif value.startswith("*** Begin Patch"):
        for path in patched_paths(value):
            effects.write(path, cwd)
    else:
        shell.analyse(value, effects, cwd)
    if shell.OPEN_FILE in effects.writes and (match := _RESULT_FILE.match(output)):
        effects.writes.pop(shell.OPEN_FILE)
        effects.touches.pop(shell.OPEN_FILE)
        effects.write(match[1])


def _python(given: dict[str, Any], effects: Effects, cwd: str) -> None:
    code = next((given[f] for f in _CODE_FIELDS if isinstance(given.get(f), str)), "")
    language = given.get("language") or given.get("lang") or ""
    if isinstance(language, str) and language.lower() in ("bash", "sh", "shell"):
        shell.analyse(code, effects, cwd)
        return

    def run_shell(command: str | list[str]) -> None:
        if isinstance(command, str):
            shell.analyse(command, effects, cwd)
        else:
            shell.analyse_words(command, effects, cwd)

    python.analyse(code, effects, cwd, run_shell)
    effects.single = _EDITING_CELL.match(code) is not None
    effects.tentative.update(effects.sources)
    effects.quotes = "open_file(" in code and not effects.writes  # OpenHands' viewer; all other cells run something


def _other(name: str, given: dict[str, Any], effects: Effects, cwd: str) -> None:
    parts = name.split("_")
    changes = _changes(parts)
    values = _path_values(given)
    paths = [p for p in values if not is_url(p)]
    urls = [u for f in _URL_FIELDS if f in given for u in strings(given[f]) if is_url(u) or u.startswith("www.")]
    urls += [u for u in values if is_url(u) and not u.startswith("file:") and u not in urls]
    if not urls and isinstance(given.get("code"), str):
        urls = _GOES_TO.findall(given["code"][:100_000])[:8]
    queries = [q for f in _QUERY_FIELDS if f in given for q in strings(given[f])]
    if name in _LIST_TOOLS:
        effects.quotes = effects.no_match = True
        for path in paths:
            if name in ("grep", "ripgrep") and looks_like_path(path) and "." in path.rpartition("/")[2].strip("."):
                effects.read(path, cwd)
            else:
                effects.touch(path, cwd)
    elif name in _READ_TOOLS or (paths and parts[0] in ("read", "view", "load", "open")):
        effects.quotes = True
        for path in paths or strings(given.get(TEXT)):
            effects.read(path, cwd)
        for url in urls:
            effects.source(normalise_url(url))
    elif urls and not changes:
        effects.quotes = "code" not in given
        for url in urls:
            effects.source(normalise_url(url))
    elif name in _FETCH_TOOLS:
        effects.quotes = bool(given.get(TEXT))
        for url in strings(given.get(TEXT)):
            effects.source(normalise_url(url))
    elif not changes and queries and _searches(name, parts):
        effects.quotes = effects.no_match = True
        for query in queries[:4]:
            effects.source(search_key(query))
        for path in paths:
            effects.touch(path, cwd)
    else:
        _record(name, parts, given, effects, changes)
        for path in paths:
            effects.touch(path, cwd)


def _searches(name: str, parts: list[str]) -> bool:
    """A search for information; agents also search for their own tools and skills, which is none."""
    return name in _SEARCH_TOOLS or bool({"search", "retrieve"} & set(parts) and not {"tool", "tools"} & set(parts))


def _changes(parts: list[str]) -> bool:
    """Whether a verb of change leads the name: `cancel_order`, `gmail_send_email`, `telegram_send`."""
    if parts[0] in _READ_VERBS:
        return False
    if parts[0] in _CHANGE_VERBS:
        return True
    return len(parts) > 1 and (parts[1] in _CHANGE_VERBS or parts[-1] in _CHANGE_VERBS) and parts[1] not in _READ_VERBS


def _record(name: str, parts: list[str], given: dict[str, Any], effects: Effects, changes: bool) -> None:
    """A call on a record of some service: its artifact is the argument that identifies the record."""
    key = _object(parts, given)
    effects.single = True
    # Records and sub-agents' reports are content; a tool with an unknown verb (`build`, `pytest`) reports on itself.
    effects.quotes = changes or parts[0] in _SHOWING_VERBS or bool(_AGENTS & set(parts))
    if changes:
        effects.write_artifact(key or f"{name}()")
    elif key:
        effects.touch_artifact(key)


def _object(parts: list[str], given: dict[str, Any]) -> str:
    """`reservation_id=4WQ150`: the id that the tool's name speaks of, else the first id, else a name or address."""
    scalars = {k: str(v) for k, v in given.items() if isinstance(v, str | int) and not isinstance(v, bool) and v != ""}
    ids = [k for k in scalars if _ID_FIELD.fullmatch(k) and k not in ("payment_id", "payment_method_id")]
    spoken = [k for k in ids if any(len(p) > 2 and p in k.lower() for p in parts)]
    named = [k for k in _NAME_FIELDS if k in scalars]
    field = next(iter(spoken + ids + named), "")
    return printable(f"{field}={' '.join(scalars[field][:120].split())}") if field else ""
