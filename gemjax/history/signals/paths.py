"""Paths as agents write them: which words are paths, and one spelling for each.

Everything here is lexical: nothing is looked up on a disk, because the agent's disk is not ours.
"""

import re

from gemjax.history.signals.tables import word_set

MAX_PATH = 400
"""Longest word taken for a path, in characters. Longer ones are payloads."""

_EXTENSIONS = word_set(
    """
    adoc astro avi awk bash bat bib bin bmp bz2 c cc cfg cmake clj cls conf cpp cs css csv cxx dart db deb diff dll
    doc docx env erl ex exs fish flac fs gif go gradle graphql gz h hbs heex hpp hrl hs htm html ico ini ipynb jar java
    jl jpeg jpg js json json5 jsonl jsx kt lean less lock log lua m make markdown md mdx mjs mk ml mli mov mp3 mp4 nim
    nix npy npz odt ods ogg onnx orig out parquet patch pcap pdf pem php pickle pkl pl png po pony ppt pptx prisma proto
    ps1 pt pth py pyi pyx r rb rej rs rst sass scala scss sh so sql sqlite sqlite3 srt star svelte svg swift tar tex
    tf tgz tif tiff toml traj ts tsv tsx ttf txt vb vtt vue wasm wav webm webp whl xhtml xls xlsx xml xz yaml yml zig
    zip zsh
    """
)
_BARE_NAMES = word_set(
    "Makefile Dockerfile Containerfile Jenkinsfile Gemfile Rakefile Procfile README LICENSE CHANGELOG NOTICE"
    " .gitignore .env .dockerignore .bashrc .zshrc .profile .npmrc .editorconfig"
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,15}://")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?=/|$)")
# `app.py:12`, `app.py:12:5` and pytest's `test_app.py::test_case[1]` name the file before the colon.
_POSITION = re.compile(r"(?<=[^:/]):(?::.*|\d{1,9}(?:[:-]\d{1,9}){0,3}:?)$", re.S)
_NOT_IN_PATH = re.compile(r"[\x00-\x1f<>|*?\"'`^!;&=,(){}\[\]\\\ud800-\udfff]")
_SEGMENT = re.compile(r"[\w@+~%#.$-]", re.ASCII)
_MEDIA_TYPE = re.compile(r"(?:text|image|audio|video|application|multipart|font)/[\w.+-]+$", re.ASCII)
_EDGES = " \t\r\n\"'`,;"


def is_url(text: str) -> bool:
    """Whether the text starts with a scheme and `://`. `file://` counts: see `normalise`, which makes a path of it."""
    return "://" in text and _URL.match(text) is not None


def normalise(raw: str, cwd: str = "") -> str:
    """One spelling for one path: no quotes, `./`, `~/`, `//` or `..`, and joined to `cwd` when that is known.

    Args:
        raw: the word as the agent wrote it.
        cwd: directory that a relative path is relative to; "" when unknown.

    Returns: the path, or "" for what cannot be one (a URL, a device, empty, too long, a lone dot).

    >>> normalise("./src//lib/../app.py"), normalise("app.py", cwd="/repo/x")
    ('src/app.py', '/repo/x/app.py')
    """
    text = raw.strip(_EDGES)
    if len(text) > MAX_PATH or not text:
        return ""
    if text.startswith("file://"):
        text = text[7:]
    elif is_url(text):
        return ""
    if ":" in text:
        text = _POSITION.sub("", text)
        if _DRIVE.match(text):
            text = text.replace("\\", "/")
    from_home = _HOME.match(text) if text[:1] in ("~", "$") else None
    if from_home:
        text = text[from_home.end() :].lstrip("/")
    elif cwd and text[:1] != "/" and not _DRIVE.match(text):
        text = f"{cwd}/{text}"
    absolute = text.startswith("/")
    parts: list[str] = []
    for part in text.split("/"):
        if part in ("", "."):
            continue
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".." or not absolute:
            parts.append(part)
    path = "/".join(parts)
    if not path.isprintable():  # NULs, newlines and lone surrogates would break the table that shows the path
        path = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in path)
    if absolute:
        path = "/" + path
    if path in ("", "/", "-") or path.startswith(("/dev/", "/proc/self/")):
        return ""
    return path


def looks_like_path(word: str) -> bool:
    """Whether a bare word names a file or directory: it has a slash, or a known extension, or a well-known name.

    >>> [looks_like_path(w) for w in ("src/app.py", "setup.cfg", "text/html", "s/a/b/", "np.save", "1.2.3")]
    [True, True, False, False, False, False]
    """
    if not 1 < len(word) <= MAX_PATH or is_url(word):
        return word.startswith("file://")
    if word.startswith("-"):
        return False
    if ":" in word:
        word = _POSITION.sub("", word)
        if _DRIVE.match(word):
            return True
    if _NOT_IN_PATH.search(word) or word.isdigit():
        return False
    if word.split(None, 1) != [word]:
        return False
    if "/" in word:
        if _MEDIA_TYPE.match(word) or word.startswith(("//", "s/", "y/", "origin/", "refs/")):
            return False
        return word not in ("/", "./", "../", "n/a", "and/or", "N/A") and _SEGMENT.search(word) is not None
    stem, dot, extension = word.rpartition(".")
    return (bool(dot) and extension.lower() in _EXTENSIONS and bool(stem)) or word in _BARE_NAMES


def basename(path: str) -> str:
    """What follows the last slash.

    >>> basename("/repo/src/app.py")
    'app.py'
    """
    return path.rstrip("/").rpartition("/")[2]
