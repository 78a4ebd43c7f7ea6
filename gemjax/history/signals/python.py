"""Python code: which files it writes, touches and reads, from its syntax tree. Read, never run.

Code that does not parse (an IPython cell with magics, Python 2, a cut-off snippet) falls back to regular expressions.
"""

import ast
import re
import string
from collections.abc import Callable

from gemjax.history.signals.effects import Effects
from gemjax.history.signals.paths import is_url, looks_like_path
from gemjax.history.signals.sources import normalise_url
from gemjax.history.signals.tables import word_set
from gemjax.history.signals.work import Work

MAX_CODE = 100_000
"""Longest code that is parsed, in characters; beyond it the regular expressions look at the beginning."""

RunShell = Callable[[str | list[str]], None]

_WRITES_TO_RECEIVER = word_set("write_text write_bytes touch unlink rmdir mkdir symlink_to hardlink_to lchmod")
_WRITES_TO_FIRST = word_set(
    """
    to_csv to_json to_parquet to_excel to_pickle to_feather to_hdf to_html to_markdown to_latex to_stata to_orc to_xml
    to_netcdf to_zarr to_file to_ply savefig savez savez_compressed savetxt imwrite imsave write_image write_html
    write_parquet write_csv write_json write_excel write_ipc write_ndjson save_pretrained save_model save_weights
    save_to_disk write_video write_png to_disk tofile extractall write_file to_yaml create_file append_file
    edit_file edit_file_by_replace edit_file_by_line insert_content_at_line delete_file writefile
    """
)
_WRITES_TO_SECOND = frozenset({"dump", "save_file", "save_as", "urlretrieve", "safe_dump", "dump_all"})
_MODULE_WRITES = {
    "os": word_set("remove unlink mkdir makedirs rmdir removedirs truncate chmod chown utime mkfifo mknod"),
    "shutil": frozenset({"rmtree"}),
}
_MODULE_MOVES = {
    "os": frozenset({"rename", "renames", "replace", "symlink", "link"}),
    "shutil": frozenset({"copy", "copy2", "copyfile", "copytree", "move", "copymode", "copystat"}),
}
_READS = word_set(
    """
    read_csv read_json read_parquet read_excel read_pickle read_feather read_hdf read_html read_table read_fwf read_sql
    loadtxt genfromtxt imread read_text read_bytes from_pretrained read_file open_file load_dataset open_dataset
    view_file PdfReader Document load_workbook
    """
)
_FETCHES = word_set("get head urlopen request Request goto fetch")
_REMOTE_CHANGES = frozenset({"put", "patch", "delete"})
_HTTP = frozenset({"requests", "httpx", "session", "client", "urllib", "request", "aiohttp", "s", "http", "page"})
_RUNS_SHELL = {
    "os": frozenset({"system", "popen"}),
    "subprocess": word_set("run call check_call check_output Popen getoutput getstatusoutput"),
}
_OPENERS = word_set("io codecs gzip bz2 lzma aiofiles tarfile zipfile h5py tokenize wave fitz os Image")
_ARCHIVES = frozenset({"ZipFile", "File", "TarFile", "ExcelWriter", "PdfPages", "HDFStore", "ParquetWriter"})
_ALWAYS_WRITERS = ("ExcelWriter", "PdfPages", "ParquetWriter")
_PATH_KEYWORDS = ("path", "path_or_buf", "fname", "filename", "file", "name")
_MODE = re.compile(r"[rwaxbtU+:|*]{1,4}(?:gz|bz2|xz)?")
# Left alone, "\d" in parsed code would print a SyntaxWarning of the agent's code in our process.
_ESCAPE = re.compile(r"\\(.)", re.S)
_KNOWN_ESCAPES = frozenset("\n\\'\"abfnrtv")
_FALLBACK_WRITE = re.compile(
    r"\bopen\(\s{0,20}[rbf]?['\"]([^'\"\n]{1,300})['\"]\s{0,20},\s{0,20}(?:mode\s{0,9}=\s{0,9})?['\"][wax]"
    r"|['\"]([^'\"\n]{1,300})['\"]\s{0,20}\)\s{0,20}\.(?:write_text|write_bytes|unlink|touch|mkdir)\("
    r"|\b(?:to_csv|to_json|to_parquet|to_excel|savefig|makedirs|os\.remove|os\.unlink|rmtree)\(\s{0,20}['\"]([^'\"\n]{1,300})['\"]"
)
_MAGIC = re.compile(r"^\s*%%(\w+)[ \t]*(.*)\n([\s\S]*)", re.M)
_BANG = re.compile(r"^[ \t]*!(.+)$", re.M)
_LINE_MAGIC = re.compile(r"^([ \t]*)[!%].*$", re.M)
_SIGN, _NODE, _CALL = 34, 14, 60  # units of work for each sign or line of the code, node of its tree and call
_WORDS = (string.ascii_letters + string.digits + "_ \t").encode()
_MAX_JOINED = 1_000  # a joined text longer than this is no path, and doubling names must not fill the memory


def analyse(code: str, effects: Effects, cwd: str = "", run_shell: RunShell | None = None) -> None:
    """Adds to `effects` what Python code writes, touches and reads.

    Args:
        code: source text, also an IPython cell.
        effects: receives the paths, resolved against `cwd`.
        cwd: working directory, "" when unknown.
        run_shell: called with the constant commands that the code passes to a shell (`os.system`, `!ls`).
    """
    magic = _MAGIC.match(code) if code.lstrip()[:2] == "%%" else None
    if magic:
        if magic[1] == "writefile":
            effects.write(magic[2].split()[-1] if magic[2].split() else "", cwd)
            return
        if magic[1] in ("bash", "sh", "script") and run_shell:
            run_shell(magic[3])
            return
    code = code[: MAX_CODE + 1]
    tree = _parse(code, effects.work)
    if tree is None and ("!" in code or "%" in code):
        for match in _BANG.finditer(code):
            if run_shell:
                run_shell(match[1])
        tree = _parse(_LINE_MAGIC.sub(r"\1pass", code), effects.work)
    if tree is None:
        effects.work.spend(4 * len(code))
        for match in _FALLBACK_WRITE.finditer(code[:MAX_CODE]):
            effects.write(match[1] or match[2] or match[3], cwd)
        return
    _Reader(effects, cwd, run_shell).read(tree)


def _parse(code: str, work: Work) -> ast.Module | None:
    if len(code) > MAX_CODE:
        return None
    cost = len(code) + _SIGN * len(code.encode("utf-8", "replace").translate(None, _WORDS))
    if cost > work.left // 2:  # the expressions for what does not parse must still be affordable
        work.spend(len(code))
        return None
    work.spend(cost)
    if "\\" in code:
        code = _ESCAPE.sub(lambda m: m[0] if m[1] in _KNOWN_ESCAPES else "\\" + m[0], code)
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Reader:
    """One pass over the tree to learn names bound to constants, one over its calls."""

    def __init__(self, effects: Effects, cwd: str, run_shell: RunShell | None) -> None:
        self.effects = effects
        self.cwd = cwd
        self.run_shell = run_shell
        self.names: dict[str, str] = {}
        self.prefixes: dict[str, str] = {}
        self.path_names: set[str] = set()
        self.unresolved = False

    def read(self, tree: ast.Module) -> None:
        nodes = []
        for node in ast.walk(tree):
            self.effects.work.spend(_NODE)
            nodes.append(node)
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                value = self.text(node.value)
                if value is not None:
                    self.names.setdefault(name, value)
                elif prefix := self.prefix(node.value):
                    self.prefixes.setdefault(name, prefix)
                if isinstance(node.value, ast.Call) and _last_name(node.value.func) in ("Path", "PurePath"):
                    self.path_names.add(name)
        had = len(self.effects.writes)
        for node in nodes:
            if isinstance(node, ast.Call):
                self.effects.work.spend(_CALL)
                self.call(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and looks_like_path(node.value):
                self.effects.touch(node.value, self.cwd)
        if self.unresolved and len(self.effects.writes) == had:
            self.effects.write_artifact("computed file name")

    def text(self, node: ast.expr | None, depth: int = 0) -> str | None:
        """The constant text of an expression: literals, names bound to them, `Path(...)`, `a / b`, `os.path.join`."""
        if depth > 8 or node is None:
            return None
        self.effects.work.spend(_NODE)
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Add):
            left, right = self.text(node.left, depth + 1), self.text(node.right, depth + 1)
            if left is None or right is None or len(left) + len(right) > _MAX_JOINED:
                return None
            return (left.rstrip("/") + "/" + right) if isinstance(node.op, ast.Div) else left + right
        if isinstance(node, ast.Call) and _last_name(node.func) in ("Path", "PurePath", "join", "str", "expanduser"):
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant):
                return None  # ", ".join(...)
            parts = [self.text(a, depth + 1) for a in node.args]
            known = [p for p in parts if p is not None]
            if not known or len(known) < len(parts) or sum(map(len, known)) > _MAX_JOINED:
                return None
            return "/".join(known)
        return None

    def prefix(self, node: ast.expr | None, depth: int = 0) -> str | None:
        """The constant beginning of a computed text: enough to know which page a computed URL is on."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and depth < 8:
            return self.text(node.left) or self.prefix(node.left, depth + 1)
        if isinstance(node, ast.JoinedStr) and node.values:
            return self.text(node.values[0])
        return self.prefixes.get(node.id) if isinstance(node, ast.Name) else None

    def write(self, node: ast.expr | None) -> None:
        path = self.text(node)
        if path is None or not self.effects.write(path, self.cwd):
            self.unresolved = True

    def read_file(self, node: ast.expr | None) -> None:
        path = self.text(node)
        if path is None:
            return
        if is_url(path):
            self.effects.source(normalise_url(path))
        else:
            self.effects.read(path, self.cwd)

    def call(self, node: ast.Call) -> None:
        function = node.func
        name = _last_name(function)
        receiver = function.value if isinstance(function, ast.Attribute) else None
        module = _last_name(receiver) if isinstance(receiver, ast.Name | ast.Attribute) else ""
        arguments = node.args
        first = (
            arguments[0] if arguments else _keyword(node, "path", "path_or_buf", "fname", "filename", "file", "name")
        )
        if name == "open" or name in _ARCHIVES:
            self.open(node, receiver, module, first)
        elif name in _RUNS_SHELL.get(module, ()):
            self.shell(first)
        elif name in _MODULE_WRITES.get(module, ()):
            self.write(first)
        elif name in _MODULE_MOVES.get(module, ()):
            target = arguments[1] if len(arguments) > 1 else _keyword(node, "dst")
            self.write(target)
            if name in ("rename", "renames", "replace", "move"):
                self.write(first)
        elif name in _WRITES_TO_RECEIVER and receiver is not None and module != "os":
            self.write(receiver)
        elif name in ("rename", "replace", "chmod") and receiver is not None:
            if self.is_path(receiver) and len(arguments) == 1:
                self.write(receiver)
                if name != "chmod":
                    self.write(first)
        elif name in _WRITES_TO_FIRST:
            if first is not None and not (isinstance(first, ast.Constant) and first.value is None):
                self.write(first)
        elif name in _WRITES_TO_SECOND or (name == "save" and module == "torch"):
            if len(arguments) > 1 and _last_name(arguments[1]) not in ("stdout", "stderr"):
                self.write(arguments[1])
        elif name == "save" and receiver is not None:
            text = self.text(first)
            if text is not None:
                self.effects.write(text, self.cwd)
        elif name in _READS:
            self.read_file(receiver if name in ("read_text", "read_bytes") else first)
        elif name in _FETCHES or name in _REMOTE_CHANGES or name == "post":
            url = self.text(first) or self.prefix(first)
            if url is not None and (is_url(url) or (module.lower() in _HTTP and url.startswith("http"))):
                self.effects.source(normalise_url(url))
                if name in _REMOTE_CHANGES:
                    self.effects.write_artifact(normalise_url(url))

    def open(self, node: ast.Call, receiver: ast.expr | None, module: str, first: ast.expr | None) -> None:
        arguments = node.args
        mode = _keyword(node, "mode")
        path = first
        if receiver is not None and module not in _OPENERS:  # `path.open("w")`: the mode comes first
            candidate = self.text(first)
            if first is None or (candidate is not None and _MODE.fullmatch(candidate)):
                path, mode = receiver, mode or first
            elif not self.is_path(receiver):
                mode = mode or (arguments[1] if len(arguments) > 1 else None)
        else:
            mode = mode or (arguments[1] if len(arguments) > 1 else None)
        if module == "os":
            return
        text = self.text(mode) or (
            "w" if _last_name(node.func) in ("ExcelWriter", "PdfPages", "ParquetWriter") else "r"
        )
        if set(text) & set("wax+"):
            self.write(path)
        else:
            self.read_file(path)

    def is_path(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            return _last_name(node.func) in ("Path", "PurePath", "with_suffix", "with_name", "joinpath", "resolve")
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.Div)
        return isinstance(node, ast.Name) and node.id in self.path_names

    def shell(self, node: ast.expr | None) -> None:
        if self.run_shell is None:
            return
        if isinstance(node, ast.List | ast.Tuple):
            command_words = [self.text(e) or "" for e in node.elts[:200]]
            if command_words and command_words[0]:
                self.run_shell(command_words)
        elif (command := self.text(node)) is not None:
            self.run_shell(command)


def _last_name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _keyword(node: ast.Call, *names: str) -> ast.expr | None:
    return next((k.value for k in node.keywords if k.arg in names), None)
