"""How programs, test runners, servers and agent harnesses say that something failed.

Every pattern is anchored to the start of a line or to a fixed phrase, has bounded repetitions (so that matching stays
linear on hostile text), and is tried only on text in which one of its needles occurs.
"""

import re
from typing import NamedTuple


class Pattern(NamedTuple):
    """`reason` is a format over the match's groups ("{1} failed tests"); empty: the matched text itself."""

    needles: tuple[str, ...]
    regex: re.Pattern[str]
    reason: str = ""


def _p(needles: str, regex: str, reason: str = "") -> Pattern:
    return Pattern(tuple(needles.split("|")), re.compile(regex, re.M), reason)


_TO_END = r"[^\n]{0,100}"
_CAMEL = r"(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}"

TRACEBACK = re.compile(r"^[ \t|+]{0,12}Traceback \(most recent call last\)", re.M)
EXCEPTION = re.compile(
    r"^(?:E[ \t]{1,8}|\[|(?!Caught )[A-Z]\w{0,30} )?"
    rf"({_CAMEL}(?:Error|Exception|Exit|Interrupt|Timeout|NotFound))\b(?::|$)",
    re.M,
)
EXCEPTION_NEEDLES = ("Error", "Exception", "Exit", "Interrupt", "Timeout", "NotFound")

FAILED_TESTS = (
    # pytest's last line: "=== 2 failed, 5 passed in 0.31s ===", "4 passed, 146 errors in 32.82s"
    _p(" failed", r"^[^\n]{0,60}?\b([1-9]\d{0,6}) failed\b[^\n]{0,80}? in [\d.]+", "{1} failed tests"),
    _p(" error", r"^[^\n]{0,60}?\b([1-9]\d{0,6}) errors?\b[^\n]{0,40}? in [\d.]+s", "{1} errors in tests"),
    _p("FAILED", r"^(?:FAILED \(|FAILED \S{1,200}|[^\n]{0,200}::\S{1,200} FAILED)", "failed tests"),
    _p("FAILED", r"^[^\n]{0,80}\bFAILED[ \t!.]*$"),
    _p("test result: FAILED", r"test result: FAILED", "failed tests"),
    _p("FAIL", r"^[ \t]{0,8}(?:--- FAIL:|FAIL(?:[ \t:]|$))" + _TO_END),
    _p(" failed", r"^[ \t]{0,4}(?:Tests|Test Suites|Test Files):?[ \t]{1,10}([1-9]\d{0,6}) failed", "{1} failed tests"),
    _p(
        "failure",
        r"\b[1-9]\d{0,6} (?:tests?|examples?|specs?),? [^\n]{0,40}?\b([1-9]\d{0,6}) failures?",
        "{1} failed tests",
    ),
    _p("failing", r"^[ \t]{0,8}([1-9]\d{0,6}) failing\b", "{1} failed tests"),
)

REPORTS = (
    _p("panic", r"^(?:thread '[^'\n]{0,80}' (?:\(\d{1,9}\) )?panicked at|panic: )" + _TO_END),
    _p("egmentation fault|core dumped", r"Segmentation fault|\(core dumped\)", "segmentation fault"),
    _p("** (", r"^[ \t]{0,4}\*\* \([\w.]{1,60}\)" + _TO_END),  # Elixir
    _p("xception|Caused by|Uncaught|Unhandled", r"^(?:Exception in thread|Caused by:|Uncaught |Unhandled )" + _TO_END),
    # "error: x", "src/a.c:10:5: fatal error: x", "a.ts(3,5): error TS2304: x", "error[E0308]: x", "[13:55] ERROR  x"
    _p(
        "rror|atal|RROR|ATAL",
        r"^(?:OBSERVATION:[ \t]{0,4})?(?:\[?\d[\d:., TZ/-]{3,30}\]?[ \t]{1,4})?"
        r"(?:[\w./~@+-]{1,120}(?:\(\d{1,7},\d{1,7}\)|(?::\d{1,7}){1,2})?(?: -)?:? ){0,2}"
        r"[\[(*!\u00d7\u2717\u2718\u274c ]{0,4}"
        r"(?:fatal |Fatal |internal |INTERNAL |unexpected |Runtime |Syntax |Compilation )?"
        r"(?:error|Error|ERROR|errors|fatal|Fatal|FATAL|CRITICAL)"
        r"(?:\[[\w-]{1,20}\]| [A-Z]{1,6}\d{1,6}| executing tool| code \d{1,4}"
        r"| in [\w./-]{1,100}| with [^\n:]{1,80}| at [^\n]{1,100})?"
        r"(?:[\])*!]{0,3}(?:: ?|[ \t]{2,})(?!0\b)\S[^\n]{0,100}|\]:? [^\n]{0,80}|:[ \t]*$)",
    ),
    _p("command not found", r"^[^\n]{0,100}command not found[^\n]{0,60}"),
    _p("npm ERR!|npm error", r"^npm (?:ERR!|error)" + _TO_END),
    _p("***", r"^(?:g?make|ninja)(?:\[\d{1,3}\])?: \*\*\* " + _TO_END),
    _p("[-]", r"^\[-\] " + _TO_END + r"|\[-\] (?:Error|Exception) " + _TO_END),
    _p("E: ", r"^E: [^\n]{1,100}"),  # apt
    _p(
        "ailed|FAIL",
        r"^[^\n]{0,60}\b(?:[Ff]ailed(?: to [^\n:]{1,80}| with)?|FAIL(?:ED|URE)?):[ \\][^\n]{1,80}"
        r"|^Failed to [^\n]{1,100}|^[^\n]{0,20}\b[Ll]ogin failed[^\n]{0,80}|^[^\n]{0,80} failed \(Error[^\n]{0,80}",
    ),
    _p(
        "rrors|rror|roblems",
        r"(?:^|[(\s])((?:Found )?[1-9]\d{0,5} (?:errors?|problems?))\b(?! handl| messag| codes?)",
        "{1}",
    ),
)

# Messages of the shell and of the programs that show content: they stand at line starts even among that content.
SHELL = (
    _p(
        "not found|ermission denied|No such|annot |n't open|no matches|nvalid|nrecognized|nknown|irectory|mbiguous",
        r"^(?:[./~]\S{0,80}/)?[\w.+-]{1,40}(?:: line \d{1,7}|:\d{1,7})?: (?:[^\n:]{1,200}: )?"
        r"(?:command not found[^\n]{0,60}|not found|[Pp]ermission denied|No such file or directory"
        r"|[Cc]annot [^\n]{1,120}|no matches found[^\n]{0,80}|[Ii]nvalid [^\n]{1,80}|unrecognized [^\n]{1,80}"
        r"|[Ii]s a directory|[Nn]ot a directory|unknown [^\n]{1,80}|ambiguous [^\n]{0,80}|can't open file[^\n]{0,120})",
    ),
    _p("fatal: ", r"^fatal: [^\n]{1,100}"),
    _p("curl: (|wget: ", r"^(?:curl: \(\d{1,3}\)|wget: )[^\n]{1,100}"),
    _p("syntax error", r"^(?:\S{1,60}: )?(?:-c: |eval: )?(?:line \d{1,7}: )?syntax error[^\n]{0,80}"),
)

HTTP = (
    _p(
        "HTTP",
        r"(?:^|[\s(<\"'])HTTP(?:/[\d.]{1,3})?"
        r"(?:[ :_-]{1,2}(?:[Ee]rror|[Ss]tatus|[Cc]ode)[ :]{0,2})?[ :_]{0,2}([45]\d\d)\b",
        "HTTP {1}",
    ),
    _p("tatus", r"\b[Ss]tatus(?:[ _]?[Cc]ode)?(?: was| of|:|=)?[ :=]{0,2}([45]\d\d)\b", "HTTP {1}"),
    _p(
        "Forbidden|Not Found|Unauthorized|Bad Request|Too Many|Server Error|Unavailable|Gateway",
        r"(?:^|[\s(:])([45]\d\d)[ :,-]{1,3}(?:Client Error: )?(?:Forbidden|Not Found|Unauthorized|Bad Request"
        r"|Too Many Requests|Internal Server Error|Service Unavailable|Bad Gateway|Gateway Time-?out)",
        "HTTP {1}",
    ),
)

TIMEOUT = (
    _p(
        "imed out|imeout",
        r"^[^\n]{0,60}\b"
        r"(?:[Cc]ommand|[Pp]rocess|[Rr]equest|[Oo]peration|[Cc]onnection|[Nn]avigation|[Ee]xecution|[Tt]ool)"
        r"\b[^\n]{0,60}\b(?:timed out|timeout)[^\n]{0,60}|^Time(?:out|d out)\b[^\n]{0,80}",
    ),
)

# Only for a short result, which is then the harness speaking: "Mutation tools are blocked while ..."
REFUSED = (
    _p(
        "blocked|denied|refused|rejected|not allowed|not permitted|doesn't want|does not want",
        r"^[^\n]{0,250}\b(?:is|are|was|were|been|execution|user|request|call) "
        r"(?:blocked|denied|refused|rejected|not allowed|not permitted|doesn't want|does not want)\b[^\n]{0,100}",
    ),
)

EXIT = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: (?:status|code|error code))?|exit[_ ]?(?:code|status)|return ?code"
    r"|returned (?:non-zero )?exit (?:status|code))[\"'>:= ]{1,4}(-?\d{1,10})\b"
)
"""Looked for in lower-cased text, which is several times faster than a pattern for both cases."""
EXIT_NEEDLES = ("exit", "return")

# How a tool itself begins a refusal; looked for only at the start of a result.
OPENING = re.compile(
    r"\s{0,8}(?:OBSERVATION:\s{0,4})?(?:# ?\w{1,20} = )?[\"']?(?:<tool_use_error>|<error>|\[ERROR\]|\[error\]"
    r"|(?:Tool |Internal |Unexpected |Fatal )?(?:Error|ERROR|error)(?: executing tool)?\b[^\n]{0,40}?:"
    r"|(?:[A-Za-z]\w{0,30}: )?(?:File|Path|Directory|Tool|Page|Function) (?:\S{1,200} )?"
    r"(?:not found|does not exist|is not)"
    r"|(?:Failed|Unable|Cannot|Could not|Can't) to |Cannot \w{1,30} |Invalid |[^\n.]{0,60}\bfailed:[ \\]"
    r"|No (?:replacement|match|exact match|changes?) (?:was|were|found)|\[No exact match|\[Your proposed edit has"
    r"|Access denied|Permission denied|Timeout|Request failed|Fetch failed|Blocked|Refused|Unknown tool"
    r"|\w{1,40}: path escapes"
    r"|The (?:tool|command|file) (?:\S{1,200} )?(?:failed|was not found|could not|does not exist))"
)
SOURCE_LINE = re.compile(r"^\s{0,8}\d{1,7}(?:[\u2192|:\t-]|\s{2})")
"""A numbered line of a file: what follows is its content, whatever it says."""
BENIGN = ("Broken pipe", "write error", "kipping", "Caught expected error")
"""Words of messages that look like errors and are none: a closed pipe after `| head`, something skipped."""
