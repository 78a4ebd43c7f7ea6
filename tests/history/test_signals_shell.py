"""Shell: what scripts write, touch and show. A table, because each line is one thing that agents really type."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.history.signals.effects import Effects
from gemjax.history.signals.lexer import split
from gemjax.history.signals.shell import analyse, analyse_words

GIT, PIP = "git repository", "pip packages"

WRITES = [
    # redirections
    ("echo hi > out.txt", ["out.txt"]),
    ("echo hi >> logs/out.txt", ["logs/out.txt"]),
    ("echo hi >| out.txt", ["out.txt"]),
    ("make &> build.log", ["build.log"]),
    ("make &>> build.log", ["build.log"]),
    ("make > a.log 2> b.log", ["a.log", "b.log"]),
    ("make >& all.log", ["all.log"]),
    (">empty.txt", ["empty.txt"]),
    ("echo x >'my file.txt'", ["my file.txt"]),
    ('echo x > "$OUT/res.json"', ["$OUT/res.json"]),
    ("cat <<'EOF' > app.py\nif a > b:\n    pass\nEOF\n", ["app.py"]),
    ("cat > app.py << EOF\nrm -rf /\nEOF\nls", ["app.py"]),
    ("cat <<-EOF >> notes.md\n\thello > world\n\tEOF\ntouch done", ["notes.md", "done"]),
    ("cat <<A <<B > both\nx > y\nA\nz > w\nB\ntouch after", ["both", "after"]),
    ("sort < in.txt > out.txt", ["out.txt"]),
    ("(cd sub && echo a > inner.txt); echo b > outer.txt", ["sub/inner.txt", "outer.txt"]),
    ("diff <(sort a.txt) <(sort b.txt) > d.patch", ["d.patch"]),
    ("exec > run.log", ["run.log"]),
    ("echo $(date) | tee -a log.txt", ["log.txt"]),
    ("pytest 2>&1 | tee out/test.log | tail", ["out/test.log"]),
    ("sudo tee /etc/hosts > /dev/null <<< 'x'", ["/etc/hosts"]),
    # edits in place, files and directories
    ("sed -i 's/a/b/' x.py y.py", ["x.py", "y.py"]),
    ("sed -i.bak -e 's/a/b/' -e 's/c/d/' x.py", ["x.py"]),
    ("sed -i '' 's/a/b/' x.py", ["x.py"]),
    ("sed -ni '5p' x.py", ["x.py"]),
    ("sed --in-place=.orig 's/a/b/' x.py", ["x.py"]),
    ("perl -pi -e 's/a/b/' lib/x.pl", ["lib/x.pl"]),
    ("perl -i.bak -pe 's/a/b/' x.txt", ["x.txt"]),
    ("awk -i inplace '{print}' x.txt", ["x.txt"]),
    ("cp a.txt b.txt", ["b.txt"]),
    ("cp -r src/ backup/", ["backup/src"]),
    ("cp a.txt b.txt dest", ["dest/a.txt", "dest/b.txt"]),
    ("cp -t dest a.txt b.txt", ["dest/a.txt", "dest/b.txt"]),
    ("mv old.py new.py", ["new.py", "old.py"]),
    ("mv a.py pkg/", ["pkg/a.py", "a.py"]),
    ("rm -rf build dist", ["build", "dist"]),
    ("rm -- -odd-name.txt", ["-odd-name.txt"]),
    ("touch a b", ["a", "b"]),
    ("mkdir -p src/new/dir", ["src/new/dir"]),
    ("ln -s ../target link", ["link"]),
    ("chmod +x run.sh", ["run.sh"]),
    ("chown user:group data/f.txt", ["data/f.txt"]),
    ("truncate -s 0 log.txt", ["log.txt"]),
    ("dd if=/dev/zero of=disk.img bs=1M count=1", ["disk.img"]),
    ("install -m 755 tool /usr/local/bin/tool", ["/usr/local/bin/tool"]),
    ("rsync -a src/ host:/backup/", ["host:/backup/src"]),
    ("split -l 10 big.txt && gzip big.txt", ["big.txt"]),
    # repositories
    ("git apply fix.patch", ["patched files"]),
    ("git apply <<'EOF'\n--- a/src/x.py\n+++ b/src/x.py\n@@ -1 +1 @@\n-a\n+b\nEOF", ["src/x.py"]),
    ("git checkout -- src/x.py", ["src/x.py"]),
    ("git checkout main", [GIT]),
    ("git -C repo commit -am 'msg > x'", [GIT]),
    ("git add -A && git commit -m 'x'", [GIT]),
    ("git reset --hard HEAD~1", [GIT]),
    ("git stash", [GIT]),
    ("git stash pop", [GIT]),
    ("git restore src/x.py", ["src/x.py"]),
    ("git rm old.py", ["old.py"]),
    ("git mv a.py b.py", ["a.py", "b.py"]),
    ("git clone https://github.com/u/repo.git", ["repo"]),
    ("git clone https://github.com/u/repo /tmp/r", ["/tmp/r"]),
    ("patch -p1 < fix.diff", ["patched files"]),
    ("patch src/x.py fix.diff", ["src/x.py"]),
    ("patch -p1 <<EOF\n--- a/x.c\n+++ b/x.c\n@@ -1 +1 @@\nEOF", ["x.c"]),
    (
        "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a.py\n*** Add File: b.py\n*** End Patch\nEOF",
        ["a.py", "b.py"],
    ),
    # downloads and archives
    ("curl -o data.zip https://x.org/d.zip", ["data.zip"]),
    ("curl -sSLO https://x.org/d.tar.gz", ["d.tar.gz"]),
    ("curl -s https://x.org/a --output=/tmp/a.html", ["/tmp/a.html"]),
    ("curl -X DELETE https://api.x.org/items/7", ["api.x.org/items/7"]),
    ("wget https://x.org/file.csv", ["file.csv"]),
    ("wget -q -O out.csv 'https://x.org/file?id=1'", ["out.csv"]),
    ("wget -P dl https://x.org/file.csv", ["dl/file.csv"]),
    ("tar xzf a.tgz -C dest", ["dest"]),
    ("tar -xf a.tar", ["files of a.tar"]),
    ("cd /w && tar -xf a.tar", ["/w"]),
    ("tar czf out.tgz src", ["out.tgz"]),
    ("unzip -o a.zip -d dest", ["dest"]),
    ("zip -r out.zip src", ["out.zip"]),
    # packages, services, databases
    ("pip install -q requests", [PIP]),
    ("python3 -m pip install -e .", [PIP]),
    ("pip3 uninstall -y x", [PIP]),
    ("sudo apt-get install -y tor", ["apt packages"]),
    ("npm ci && npm install --save x", ["npm packages"]),
    ("yarn", ["yarn packages"]),
    ("cargo add serde", ["cargo packages"]),
    ("go get example.com/x && go mod tidy", ["go packages"]),
    ("uv pip install x", ["uv packages"]),
    ("uv sync", ["uv packages"]),
    ("conda create -n e python && conda install -y numpy", ["conda packages"]),
    ("make install", ["installed software"]),
    ("python -m venv .venv", [".venv"]),
    ("docker build -t img .", ["docker objects"]),
    ("kubectl apply -f k8s/", ["cluster"]),
    ("sqlite3 app.db 'UPDATE t SET a = 1'", ["app.db"]),
    ("psql -c 'drop table t'", ["database"]),
    ("gh pr create --title x --body y", ["gh"]),
    ("gh issue close 7", ["gh 7"]),
    ("bd update task-1 --status done", ["bd task-1"]),
    ("npx create-next-app@latest my-app --ts", ["my-app"]),
    ("nmap -oN scan.txt 10.0.0.1", ["scan.txt"]),
    ("gcc -O2 main.c -o build/main", ["build/main"]),
    ("black src/app.py && ruff check --fix .", ["src/app.py"]),
    ("prettier --write src/a.ts", ["src/a.ts"]),
    # wrappers, interpreters, control flow
    ("bash -c 'cd sub && sed -i s/a/b/ x.py'", ["sub/x.py"]),
    ('zsh -lc "echo a > b.txt"', ["b.txt"]),
    ("sudo -u root env A=1 B=2 cp x y", ["y"]),
    ("timeout -s KILL 30 rm -f lock", ["lock"]),
    ("nohup nice -n 5 touch done &", ["done"]),
    ("FOO=1 BAR=2 touch x", ["x"]),
    ("cd /repo && cd src && touch a.py", ["/repo/src/a.py"]),
    ("cd /repo/src && rm ../setup.cfg", ["/repo/setup.cfg"]),
    ("cd ~/proj && touch a.py", ["proj/a.py"]),
    ("for f in a.txt b.txt; do sed -i s/x/y/ $f; done", ["a.txt", "b.txt"]),
    ("F=conf.ini; echo a > $F", ["conf.ini"]),
    ("DIR=/data; cp x.csv ${DIR}/x.csv", ["/data/x.csv"]),
    ("if [ -f a ]; then rm a; else touch b; fi", ["a", "b"]),
    ("while read l; do echo $l >> all.txt; done < in.txt", ["all.txt"]),
    ("{ echo a; echo b; } > both.txt", ["both.txt"]),
    ("grep -rl foo src | xargs sed -i 's/foo/bar/'", ["computed file name"]),
    ("find . -name '*.pyc' -delete", ["computed file name"]),
    ("find src -name '*.py' -exec sed -i s/a/b/ {} +", ["computed file name"]),
    ("echo $(touch inner.txt)", ["inner.txt"]),
    ("echo `touch inner.txt`", ["inner.txt"]),
    ('echo "x $(echo y > deep.txt) z"', ["deep.txt"]),
    ("eval 'touch evald'", ["evald"]),
    ("ssh -p 22 host 'echo x > remote.txt'", ["remote.txt"]),
    ("bash <<'EOF'\ncd d\ntouch x\nEOF", ["d/x"]),
    ("python3 - <<'EOF'\nopen('o.txt', 'w').write('a')\nEOF", ["o.txt"]),
    ("python -c \"import os; os.remove('x.tmp')\"", ["x.tmp"]),
    ("cd w && uv run python -c \"open('o.txt','w')\"", ["w/o.txt"]),
    ("node -e \"require('fs').writeFileSync('o.json', x)\"", ["o.json"]),
    ("echo a > out.txt # > not.txt", ["out.txt"]),
    ("echo a > $(mktemp)", ["computed file name"]),
    # what cannot be parsed falls back to a look for the plainest writes
    ('echo "never closed > out.txt', ["out.txt"]),
]

NOT_WRITES = [
    "ls 2>&1", "ls >/dev/null", "ls 2>/dev/null", "ls &>/dev/null", "cmd 1>&2", "cmd >&2", "cmd 2>&-",
    'echo "a > b"', "echo 'a >> b'", "echo a \\> b", "grep '->' x.c", "grep 'a > b' src/x.py", 'rg "=>" src',
    "awk '$3 > 100' data.tsv", "awk '{ if ($1 > 2) print }' x",
    "python -c 'print(3 > 2)'", "[[ a > b ]]", "[ $a -gt 3 ]", "echo $((3 > 2))", "(( x > 3 ))", "a -> b", "x => y",
    "sed -n '1,5p' x.py", "sed 's/-i/x/' x.py", "perl -e 'print 1'", "cat x.py | head", "git status",
    "git diff > /dev/null",
    "git log --oneline", "git stash list", "git branch", "git branch -a", "git tag -l", "git config --get user.name",
    "git show HEAD:src/x.py", "git fetch origin", "pip list", "pip show x", "npm run build", "npm test", "cargo build",
    "go test ./...", "uv run pytest", "python app.py", "pytest -q", "make", "make test", "curl https://x.org",
    "curl -s -o /dev/null -w '%{http_code}' https://x.org", "curl -X POST -d a=1 https://x.org", "wget -qO- https://x.org",
    "tar tzf a.tgz", "unzip -l a.zip", "echo update", "which install", "man rm", "type rm", "docker ps",
    "docker logs x",
    "kubectl get pods", "sqlite3 app.db 'select * from t'", "black --check .", "prettier src/a.ts", "cd /tmp", "# rm x",
    "find . -name '*.py'", "grep -o x y", "echo hi | wc -l", "true", "", "   \n", "for f in a b; do echo $f; done",
    "cat <<EOF\nrm -rf x > y\nEOF", "bash -n script.sh", "python -m pytest tests/test_x.py", "ssh host ls",
]  # fmt: skip


def effects(script: str, cwd: str = "") -> Effects:
    found = Effects()
    analyse(script, found, cwd)
    return found


@pytest.mark.parametrize(("script", "expected"), WRITES, ids=[s[:40] for s, _ in WRITES])
def test_writes(script, expected):
    assert list(effects(script).writes) == expected


@pytest.mark.parametrize("script", NOT_WRITES)
def test_not_writes(script):
    assert list(effects(script).writes) == []


@pytest.mark.parametrize(
    ("script", "touches", "sources"),
    [
        ("cat src/a.py", ["src/a.py"], ["src/a.py"]),
        ("head -n 20 a.txt b.txt", ["a.txt", "b.txt"], ["a.txt", "b.txt"]),
        ("sed -n '1,5p' ./src//x.py", ["src/x.py"], ["src/x.py"]),
        ("nl -ba x.py | sed -n '3,9p'", ["x.py"], ["x.py"]),
        ("grep -n 'def f' pkg/x.py", ["pkg/x.py"], ["pkg/x.py"]),
        ("grep -rn foo pkg tests", ["pkg", "tests"], []),
        (
            "cd /repo && cat a.py && pytest tests/test_a.py::test_x",
            ["/repo/a.py", "/repo/tests/test_a.py"],
            ["/repo/a.py"],
        ),
        ("ls -la src", ["src"], []),
        ("python tools/gen.py --in data/x.csv", ["tools/gen.py", "data/x.csv"], []),
        ("jq '.a' data.json", ["data.json"], ["data.json"]),
        ("awk -F, '{print $1}' d.csv", ["d.csv"], ["d.csv"]),
        ("wc -l a.py", ["a.py"], []),
        ("sort < in.txt", ["in.txt"], ["in.txt"]),
        ("diff a.py b.py", ["a.py", "b.py"], ["a.py", "b.py"]),
        ("curl -s https://www.X.org/a/?utm_source=q#f", [], ["x.org/a"]),
        ("wget https://x.org/f.csv", ["f.csv"], ["x.org/f.csv"]),
        ("git show HEAD -- src/x.py", ["src/x.py"], []),
        ("cat 'with space.txt'", ["with space.txt"], ["with space.txt"]),
        ("cat ~/notes.md", ["notes.md"], ["notes.md"]),
        ("open src/x.py 40", ["src/x.py"], ["src/x.py"]),
    ],
)
def test_touches_and_sources(script, touches, sources):
    found = effects(script)
    assert list(found.touches) == touches
    assert list(found.sources) == sources


@pytest.mark.parametrize(
    ("script", "quotes", "no_match"),
    [
        ("cat a.log", True, False),
        ("cd x && cat a.log | head -5", True, False),
        ("grep foo a.py", True, True),
        ("cat a.py | grep foo", True, True),
        ("git diff", True, True),
        ("grep foo a.py; pytest", False, False),
        ("pytest | grep FAILED", False, False),
        ("python x.py > out; cat out", False, False),
        ("curl https://x.org", True, False),
        ("make", False, False),
        ("bash -c 'cat a.log'", True, False),
        ("find . -name '*.py' | xargs grep foo", True, True),
        ("test -f x", True, True),
        ("mkdir x && echo ok", False, False),
    ],
)
def test_whose_words_the_output_is(script, quotes, no_match):
    found = effects(script)
    assert (found.quotes, found.no_match) == (quotes, no_match)


def test_a_list_is_one_command_and_the_working_directory_is_followed():
    found = Effects()
    analyse_words(["bash", "-lc", "cd sub; echo x > y.txt"], found, "/w")
    analyse_words(["cp", "a b.txt", "c > d.txt"], found, "/w")
    assert list(found.writes) == ["/w/sub/y.txt", "/w/c > d.txt"]


plain_words = st.lists(
    st.text(st.sampled_from("abcXYZ019_-./:@%+=,~ \t'\"\\$`|&;<>(){}[]*?!#\n"), max_size=8), min_size=1, max_size=6
)


@settings(max_examples=150, deadline=None)
@given(plain_words)
def test_words_agree_with_shlex(words):
    """What `shlex.join` quotes, the lexer must read back as those words, whatever is in them."""
    script = shlex.join(words)
    commands = list(split(script).commands())
    read = [w for c in commands for w in c.words]
    assert read == shlex.split(script) == words
    assert not any(c.redirects for c in commands)
