"""What common programs do with things that are not plain files: repositories, packages, URLs, containers, databases."""

import re

from gemjax.history.signals.file_programs import FILE_PROGRAMS
from gemjax.history.signals.patches import patched_paths
from gemjax.history.signals.paths import basename, is_url, looks_like_path
from gemjax.history.signals.programs import Context, Handler, Kind, operands
from gemjax.history.signals.sources import normalise_url
from gemjax.history.signals.tables import word_set

REPOSITORY = "git repository"

CHANGING_VERBS = word_set(
    "create update delete remove add set close reopen edit apply install uninstall upgrade deploy publish push merge"
    " rename move import destroy enable disable start stop approve comment assign claim submit"
)
"""Sub-commands that change something, whatever the program: `bd update 12`, `gh issue close 7`."""

_GIT_READS = word_set(
    "diff show log status blame grep ls-files ls-tree cat-file describe rev-parse rev-list shortlog reflog bisect"
    " whatchanged name-rev merge-base check-ignore count-objects fsck help version var for-each-ref show-ref ls-remote"
)
_GIT_CHANGES_FILES = word_set("checkout switch restore reset rm mv clean")
_GIT_LISTS = {"branch": word_set("-a -r -v -vv --list --show-current --all"), "tag": word_set("-l --list -n")}
_GIT_LISTS |= {"stash": word_set("list show"), "remote": word_set("-v show get-url"), "worktree": word_set("list")}
_GIT_LISTS |= {"config": word_set("--list -l --get --get-all get list"), "submodule": word_set("status summary")}
_GIT_VALUES = word_set("-C -c --git-dir --work-tree --exec-path --namespace")


def _git(arguments: list[str], context: Context) -> Kind:
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in _GIT_VALUES else 1
    if at >= len(arguments):
        return Kind.QUOTES
    verb, rest = arguments[at], arguments[at + 1 :]
    if verb in _GIT_READS:
        context.touch(rest[rest.index("--") + 1 :] if "--" in rest else operands(rest))
        return Kind.SEARCHES if verb in ("grep", "diff", "check-ignore") else Kind.QUOTES
    listing = _GIT_LISTS.get(verb)
    if listing is not None and ((not rest and verb != "stash") or listing & set(rest[:2])):
        return Kind.QUOTES
    if verb == "fetch":
        return Kind.RUNS
    if verb in ("clone", "init"):
        words = operands(rest, word_set("-b --branch --depth --origin -o"))
        folder = basename(words[0]).removesuffix(".git") if words and verb == "clone" else ""
        context.write((words[1:2] if verb == "clone" else words[:1]) or [folder], otherwise=REPOSITORY)
        return Kind.RUNS
    if verb in ("apply", "am"):
        paths = [p for body in context.bodies for p in patched_paths(body)]
        context.touch(operands(rest))
        context.write(paths, otherwise="patched files")
        return Kind.RUNS
    if verb in _GIT_CHANGES_FILES:
        named = rest[rest.index("--") + 1 :] if "--" in rest else operands(rest, word_set("-b -B -c -s --source"))
        named = [w for w in named if verb in ("rm", "mv") or looks_like_path(w)]
        context.write(named, otherwise=REPOSITORY)
    else:
        if verb == "add":
            context.touch(operands(rest))
        context.effects.write_artifact(REPOSITORY)
    return Kind.RUNS


_PACKAGE_VERBS = word_set(
    "install uninstall add remove update upgrade i ci sync get deps.get require dist-upgrade purge develop download"
    " reinstall -S -R -Syu rm un autoremove link unlink tidy fetch tap"
)
_PACKAGE_NAMES = {"pip": "pip", "pip3": "pip", "apt-get": "apt", "aptitude": "apt", "mamba": "conda"}


def _packages(name: str) -> Handler:
    def handler(arguments: list[str], context: Context) -> Kind:
        words = [a for a in arguments if not a.startswith("--")][:3]
        if name in ("uv", "go", "cargo", "poetry", "composer", "dotnet"):  # `uv pip install`, `go mod tidy`
            changes = bool(set(words[:2]) & _PACKAGE_VERBS) and words[:1] != ["run"]
        else:
            changes = bool(set(words[:2]) & _PACKAGE_VERBS)
        if not arguments and name == "yarn":
            changes = True
        if changes and not {"--dry-run", "--help"} & set(arguments):
            context.effects.write_artifact(f"{_PACKAGE_NAMES.get(name, name)} packages")
        context.touch(operands(arguments))
        return Kind.RUNS

    return handler


_PACKAGE_MANAGERS = word_set(
    "pip pip3 apt apt-get aptitude yum dnf apk pacman brew port snap npm pnpm yarn bun cargo go uv poetry pdm"
    " conda mamba gem bundle composer mix hex nuget dotnet rustup nvm cabal stack luarocks cpan cpanm opam"
)

_CURL_VALUES = word_set(
    "-X --request -H --header -d --data --data-raw --data-binary --data-urlencode --json -o --output -u --user -A"
    " --user-agent -e --referer -b --cookie -c --cookie-jar -F --form -T --upload-file -x --proxy -m --max-time -w"
    " --socks5 --socks5-hostname --socks4 --preproxy --interface --write-out -K --config --connect-timeout --retry"
    " --resolve --cacert --cert --key -E -r --range"
)
_WGET_VALUES = word_set("-O --output-document -o -a -P --directory-prefix -U --user-agent --header --post-data -T -t")


def _options(arguments: list[str]) -> dict[str, str]:
    """Each option with the word after it, or after its equals sign."""
    given = {option: arguments[i + 1] for i, option in enumerate(arguments[:-1]) if option.startswith("-")}
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if equals and option.startswith("--"):
            given[option] = value
    return given


def _curl(arguments: list[str], context: Context) -> Kind:
    urls = [w for w in operands(arguments, _CURL_VALUES) if "." in w or is_url(w) or w.startswith("localhost")]
    given = _options(arguments)
    output = given.get("-o") or given.get("--output")
    if output is not None:
        context.effects.write(output, context.cwd)
    elif any(re.fullmatch(r"-[a-zA-NP-Z]*+O[a-zA-Z]*+|--remote-name", a) for a in arguments):
        context.write([basename(url.partition("?")[0]) for url in urls], otherwise="downloaded file")
    if (given.get("-X") or given.get("--request") or "").upper() in ("PUT", "PATCH", "DELETE"):
        for url in urls:
            context.effects.write_artifact(normalise_url(url))
    for url in urls if output != "/dev/null" else ():  # only its headers or status were asked for
        context.effects.source(normalise_url(url))
    return Kind.QUOTES


def _wget(arguments: list[str], context: Context) -> Kind:
    urls = operands(arguments, _WGET_VALUES)
    given = _options(arguments)
    glued = next((a[2:] or "" for a in arguments if a.startswith("-O") and len(a) > 2), None)
    target = given.get("-O") or given.get("--output-document") or glued
    to_standard_output = target == "-" or any(re.fullmatch(r"-[a-zA-Z]*+(?<=O)-", a) for a in arguments)
    if not to_standard_output and "--spider" not in arguments:
        prefix = given.get("-P") or given.get("--directory-prefix")
        names = [target] if target else [basename(u.partition("?")[0]) for u in urls]
        context.write([f"{prefix}/{n}" if prefix else n for n in names], otherwise="downloaded file")
    for url in urls:
        context.effects.source(normalise_url(url))
    return Kind.QUOTES


def _browses(arguments: list[str], context: Context) -> Kind:
    for word in arguments:
        if is_url(word):
            context.effects.source(normalise_url(word))
    return Kind.QUOTES


_SQL_CHANGES = re.compile(r"\b(?:insert\s+into|update\s+\w+\s+set|delete\s+from|create|drop|alter|truncate)\b", re.I)


def _database(is_file: bool) -> Handler:
    def handler(arguments: list[str], context: Context) -> Kind:
        texts = [text[:20_000] for text in arguments + context.bodies]
        context.effects.work.spend(2 * sum(map(len, texts)))
        changes = any(map(_SQL_CHANGES.search, texts))
        files = [w for w in arguments[:4] if looks_like_path(w)] if is_file else []
        if changes:
            context.write(files[:1], otherwise="database")
        else:
            context.touch(files)
        return Kind.RUNS

    return handler


def _verbs(artifact: str, changing: str) -> Handler:
    """A client of some service: changes `artifact` when one of its first words is a changing verb."""
    verbs = word_set(changing)

    def handler(arguments: list[str], context: Context) -> Kind:
        if verbs & set([a for a in arguments if not a.startswith("-")][:3]):
            context.effects.write_artifact(artifact)
        context.touch(operands(arguments))
        return Kind.RUNS

    return handler


def _make(arguments: list[str], context: Context) -> Kind:
    if any(a in ("install", "uninstall", "clean", "distclean", "deploy", "migrate") for a in arguments):
        context.effects.write_artifact("installed software" if "install" in arguments else "build products")
    context.touch(operands(arguments))
    return Kind.RUNS


def _accounts(arguments: list[str], context: Context) -> Kind:
    context.effects.write_artifact("system accounts")
    return Kind.RUNS


_OUTPUT_OPTIONS = word_set(
    "-o --output -outputfile --outputfile --output-file --outfile -outfile --out -out --output-dir --outdir --log-file"
    " -oN -oX -oG -oA --export --save --dump --report-file -w --dest --destination --cookies-out"
)


def unlisted(name: str, arguments: list[str], context: Context) -> Kind:
    """A program we know nothing about: its output options write, and its first words may be a changing verb."""
    for i, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option in _OUTPUT_OPTIONS:
            value = value if equals else "".join(arguments[i + 1 : i + 2])
            if looks_like_path(value) or (value and option not in ("-o", "-w", "--save", "--dump", "--out", "-out")):
                context.effects.write(value, context.cwd)
    words = [a for a in arguments[:6] if not a.startswith("-")]
    if name.startswith("create-") and words:  # `npx create-next-app my-app`
        context.effects.write(words[0], context.cwd)
    depth = 3 if name in _SERVICE_CLIENTS else 1
    verb = next((w for w in words[:depth] if w in CHANGING_VERBS), "")
    if verb and re.fullmatch(r"[a-z][\w.-]*", name):
        after = arguments[arguments.index(verb) + 1 :][:1]  # `bd update 12`: the thing that is updated
        named = after and not after[0].startswith("-")
        context.effects.write_artifact(f"{name} {after[0][:80]}" if named else name)
    context.touch([a for a in arguments if not a.startswith("-")])
    return Kind.RUNS


_SERVICE_CLIENTS = word_set(
    "gh glab aws az gcloud heroku fly flyctl vercel netlify firebase stripe supabase doctl linode"
)

SERVICE_PROGRAMS: dict[str, Handler] = {
    "git": _git,
    "curl": _curl,
    "wget": _wget,
    **dict.fromkeys(("lynx", "w3m", "links", "http", "xh", "html2text"), _browses),
    "make": _make,
    "gmake": _make,
    "ninja": _make,
    "sqlite3": _database(is_file=True),
    "duckdb": _database(is_file=True),
    **dict.fromkeys(("psql", "mysql", "mariadb", "mongosh", "sqlcmd", "redis-cli"), _database(is_file=False)),
    **{name: _packages(name) for name in sorted(_PACKAGE_MANAGERS)},
    "docker": _verbs("docker objects", "build rm rmi create start stop kill pull push tag commit up down prune"),
    "podman": _verbs("podman objects", "build rm rmi create start stop kill pull push tag commit up down prune"),
    "kubectl": _verbs("cluster", "apply create delete patch replace scale set edit label annotate rollout drain"),
    "helm": _verbs("cluster", "install upgrade uninstall rollback"),
    "terraform": _verbs("infrastructure", "apply destroy import taint"),
    **dict.fromkeys(("useradd", "usermod", "userdel", "passwd", "groupadd", "adduser", "chpasswd"), _accounts),
}


def run(name: str, arguments: list[str], context: Context) -> Kind:
    """Records what one program does and says what its output is."""
    handler = FILE_PROGRAMS.get(name) or SERVICE_PROGRAMS.get(name)
    return handler(arguments, context) if handler else unlisted(name, arguments, context)
