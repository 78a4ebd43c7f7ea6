"""What common programs do with files: which operands they change, which they show.

Adding a program is one line in the table at the end of each half.
"""

import re

from gemjax.history.signals.patches import patched_paths
from gemjax.history.signals.paths import basename, looks_like_path
from gemjax.history.signals.programs import Context, Handler, Kind, operands
from gemjax.history.signals.tables import word_set

OPEN_FILE = "open file"
"""Artifact of SWE-agent's `edit`, which names no file; the result does."""

FILE_PROGRAMS: dict[str, Handler] = {}


def _add(names: str, handler: Handler) -> None:
    FILE_PROGRAMS.update(dict.fromkeys(names.split(), handler))


# --- programs that show content -------------------------------------------------------------------------------------


def _shows(valued: str = "", skip: int = 0, script_options: str = "", kind: Kind = Kind.QUOTES) -> Handler:
    """A reader: operands are files, except the first `skip` (a pattern, a script) unless an option gave that."""
    with_value = word_set(valued) | word_set(script_options)
    gives_script = word_set(script_options)

    def handler(arguments: list[str], context: Context) -> Kind:
        words = operands(arguments, with_value)
        context.read(words if gives_script & set(arguments) else words[skip:])
        return kind

    return handler


def _lists(valued: str = "", skip: int = 0, kind: Kind = Kind.QUOTES) -> Handler:
    """Shows facts about its operands, not their content: they are touched but are no sources."""

    def handler(arguments: list[str], context: Context) -> Kind:
        for word in operands(arguments, word_set(valued))[skip:]:
            context.effects.touch(word, context.cwd)
        return kind

    return handler


def _says(kind: Kind) -> Handler:
    """Its operands are no files."""
    return lambda arguments, context: kind


def _grep(arguments: list[str], context: Context) -> Kind:
    words = operands(arguments, word_set("-A -B -C -m -e -f -g -t -T --include --exclude --exclude-dir --context"))
    if not {"-e", "-f"} & set(arguments):
        words = words[1:]
    for word in words:
        # A named file is read; a directory is only searched, and its hits say which files they are from.
        if looks_like_path(word) and "." in basename(word).strip("."):
            context.effects.read(word, context.cwd)
        else:
            context.effects.touch(word, context.cwd)
    return Kind.SEARCHES


def _sed(arguments: list[str], context: Context) -> Kind:
    words = [w for w in operands(arguments, word_set("-e -f -l --expression --file")) if w]
    files = words if any(a.startswith(("-e", "-f", "--expr", "--file")) for a in arguments) else words[1:]
    if any(re.match(r"-[nErsuz]*i|--in-place", a) for a in arguments):
        context.write(files)
        return Kind.QUIET
    context.read(files)
    return Kind.QUOTES


def _awk(arguments: list[str], context: Context) -> Kind:
    words = operands(arguments, word_set("-F -v -f -i"))
    files = words if "-f" in arguments else words[1:]
    if "inplace" in arguments:
        context.write(files)
    else:
        context.read([w for w in files if "=" not in w])
    return Kind.QUOTES


def _sort(arguments: list[str], context: Context) -> Kind:
    if "-o" in arguments[:-1]:
        context.write([arguments[arguments.index("-o") + 1]])
    context.read(operands(arguments, word_set("-k -t -o -S -T")))
    return Kind.QUOTES


_add("cat tac nl bat batcat less more zcat bzcat xzcat gzcat strings view pdftotext xmllint tidy", _shows())
_add("head tail", _shows("-n -c --lines --bytes"))
_add("xxd hexdump od", _shows("-n -s -l -c -e -A -t -N -j"))
_add("jq yq", _shows("--arg --argjson --indent -L", skip=1, script_options="-f --from-file"))
_add("cut paste column tr uniq rev fold fmt expand comm join base64", _shows("-d -f -c -b -s -t -w -n"))
_add("diff cmp colordiff", _shows("-U -C --label", kind=Kind.SEARCHES))
_add("search_file", _lists())
_add("wc ls ll dir tree du stat file readlink realpath dirname basename md5sum sha1sum sha256sum", _lists("-L -I"))
_add("find fd locate search_dir find_file", _lists("-name -type -iname -path -maxdepth -mindepth -newer -size"))
_add("grep egrep fgrep zgrep rg ag ack", _grep)
_add("systemctl service launchctl journalctl ss netstat ip ifconfig", _says(Kind.QUOTES))
_add("which type command hash pgrep whereis expr", _says(Kind.SEARCHES))
_add("sed gsed", _sed)
_add("awk gawk mawk nawk", _awk)
_add("sort", _sort)
_add(
    "echo printf pwd true false : sleep date whoami id hostname uname wait read set shopt trap exit return break"
    " continue ps df free uptime clear history alias unset ulimit umask seq yes tput tty goto scroll_up scroll_down",
    _says(Kind.QUIET),
)


def _source(arguments: list[str], context: Context) -> Kind:
    context.touch(arguments[:1])
    return Kind.QUIET


_add("source .", _source)


def _open_file(arguments: list[str], context: Context) -> Kind:
    context.read(operands(arguments)[:1])  # SWE-agent's `open FILE [LINE]`
    return Kind.QUOTES


_add("open", _open_file)


# --- programs that change files -------------------------------------------------------------------------------------


def _changes(valued: str = "", skip: int = 0, kind: Kind = Kind.QUIET) -> Handler:
    def handler(arguments: list[str], context: Context) -> Kind:
        context.write(operands(arguments, word_set(valued))[skip:])
        return kind

    return handler


def _copies(moves: bool) -> Handler:
    def handler(arguments: list[str], context: Context) -> Kind:
        into = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a in ("-t", "--target-directory")), "")
        words = operands(arguments, word_set("-t --target-directory -S -e --exclude --include -P -i -m -o -g -F -l"))
        sources = words if into else words[:-1]
        target = into or (words[-1] if len(words) > 1 else "")
        if target.endswith("/") or target == "." or len(sources) > 1:
            context.write([f"{target}/{basename(s)}" for s in sources], otherwise=target or "computed file name")
        else:
            context.write([target])
        for source in sources:
            if moves:
                context.effects.write(source, context.cwd)
            elif ":" not in source:
                context.effects.touch(source, context.cwd)
        return Kind.QUIET

    return handler


def _dd(arguments: list[str], context: Context) -> Kind:
    for argument in arguments:
        if argument.startswith("of="):
            context.effects.write(argument[3:], context.cwd)
        elif argument.startswith("if="):
            context.effects.touch(argument[3:], context.cwd)
    return Kind.QUIET


def _tar(arguments: list[str], context: Context) -> Kind:
    flags = arguments[0].lstrip("-") if arguments and not arguments[0].startswith("--") else ""
    archive = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a.lstrip("-").endswith("f")), "")
    directory = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a in ("-C", "--directory")), "")
    if "x" in flags or {"--extract", "--get"} & set(arguments):
        context.touch([archive])
        context.write([directory or context.cwd], otherwise=f"files of {basename(archive) or 'an archive'}")
    elif set("cru") & set(flags) or "--create" in arguments:
        context.write([archive])
    return Kind.QUIET


def _unzip(arguments: list[str], context: Context) -> Kind:
    directory = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a == "-d"), "")
    archive = "".join(operands(arguments, word_set("-d -x"))[:1])
    context.touch([archive])
    if not {"-l", "-p", "-t", "-v"} & set(arguments):
        context.write([directory or context.cwd], otherwise=f"files of {basename(archive) or 'an archive'}")
    return Kind.QUIET


def _zip(arguments: list[str], context: Context) -> Kind:
    context.write(operands(arguments)[:1])
    return Kind.QUIET


def _perl(arguments: list[str], context: Context) -> Kind:
    words = operands(arguments, word_set("-e -E -pe -ne -pie -M"))
    if any(re.match(r"-[a-df-zA-DF-Z0]*i", a) for a in arguments):
        scripted = any(re.fullmatch(r"-\w*[eE]", a) for a in arguments)
        context.write([w for w in words if not scripted or looks_like_path(w)])
        return Kind.QUIET
    context.touch(words)
    return Kind.RUNS


def _patch(arguments: list[str], context: Context) -> Kind:
    words = operands(arguments, word_set("-p -i -d -o --input --directory"))
    paths = words[:1] or [p for body in context.bodies for p in patched_paths(body)]
    context.write(paths, otherwise="patched files")
    return Kind.RUNS


def _apply_patch(arguments: list[str], context: Context) -> Kind:
    context.write([p for text in arguments + context.bodies for p in patched_paths(text)], otherwise="patched files")
    return Kind.RUNS


def _edit_open_file(arguments: list[str], context: Context) -> Kind:
    context.effects.write_artifact(OPEN_FILE)
    return Kind.RUNS


def _editor_tool(arguments: list[str], context: Context) -> Kind:
    if arguments[:1] == ["view"]:
        context.read(arguments[1:2])
        return Kind.QUOTES
    context.write(arguments[1:2])
    return Kind.RUNS


def _last_operand(arguments: list[str], context: Context) -> Kind:
    words = operands(arguments)
    context.touch(words[:-1])
    context.write([w for w in words[-1:] if looks_like_path(w)])
    return Kind.RUNS


def _formats(flags: str = "", unless: str = "") -> Handler:
    """A formatter: rewrites its operands when one of `flags` is given (always when there are none)."""

    def handler(arguments: list[str], context: Context) -> Kind:
        given = set(arguments)
        if (not flags or word_set(flags) & given) and not word_set(unless) & given:
            context.write([w for w in operands(arguments) if looks_like_path(w) or w == "."], otherwise="source files")
        else:
            context.touch(operands(arguments))
        return Kind.RUNS

    return handler


def javascript(code: str, context: Context) -> None:
    """Files that a `node -e` script writes, by the names of the `fs` functions."""
    for match in _JAVASCRIPT.finditer(code[:200_000]):
        context.effects.write(match[1], context.cwd)


_JAVASCRIPT = re.compile(
    r"\b(?:writeFile|appendFile|createWriteStream|unlink|rename|mkdir|rm|rmdir|copyFile|outputFile|writeJson|write)"
    r"(?:Sync)?\(\s*['\"`]([^'\"`\n]{1,300})['\"`]"
)

_add("tee touch rm rmdir unlink shred mkfifo mkdir create", _changes("-m -r -d -t -s --size --mode"))
_add("truncate", _changes("-s --size -r"))
_add("chmod chown chgrp setfacl", _changes("--reference", skip=1))
_add("gzip gunzip bzip2 bunzip2 xz unxz zstd dos2unix unix2dos ed venv virtualenv", _changes("-p --python"))
_add("cp ln install rsync scp ditto", _copies(moves=False))
_add("mv rename", _copies(moves=True))
_add("zip", _zip)
_add("dd", _dd)
_add("tar bsdtar", _tar)
_add("unzip 7z", _unzip)
_add("perl ruby", _perl)
_add("patch", _patch)
_add("apply_patch applypatch", _apply_patch)
_add("edit insert append", _edit_open_file)
_add("str_replace_editor str_replace_based_edit_tool edit_anthropic", _editor_tool)
_add("ffmpeg convert magick", _last_operand)
_add("black isort autopep8 rustfmt yapf", _formats(unless="--check --diff --check-only"))
_add("prettier gofmt goimports clang-format", _formats(flags="--write -w -i"))
_add("eslint stylelint rubocop standard", _formats(flags="--fix -a -A"))
