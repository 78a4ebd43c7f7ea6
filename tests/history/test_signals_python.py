"""Python code: what it writes, touches and reads, by its syntax tree or, where that fails, by its text."""

import warnings

import pytest

from gemjax.history.signals.effects import Effects
from gemjax.history.signals.python import analyse

WRITES = [
    ("open('a.txt', 'w').write('x')", ["a.txt"]),
    ("with open('a.txt', mode='a') as f: f.write('x')", ["a.txt"]),
    ("with open('a.bin', 'xb') as f: pass", ["a.bin"]),
    ("f = open('a.txt', 'r+')", ["a.txt"]),
    ("import io\nio.open(file='a.txt', mode='w')", ["a.txt"]),
    ("import gzip\ngzip.open('a.gz', 'wt')", ["a.gz"]),
    ("from pathlib import Path\nPath('a.txt').write_text('x')", ["a.txt"]),
    ("p = Path('d') / 'a.txt'\np.write_bytes(b'')", ["d/a.txt"]),
    ("p = Path('a.txt')\nwith p.open('w') as f: pass", ["a.txt"]),
    ("Path('a').touch(); Path('b').unlink(missing_ok=True); Path('c').mkdir()", ["a", "b", "c"]),
    ("p = Path('a.txt')\np.rename('b.txt')", ["a.txt", "b.txt"]),
    ("p = Path('a.txt')\np.replace(Path('b.txt'))", ["a.txt", "b.txt"]),
    ("df.to_csv('out.csv', index=False)", ["out.csv"]),
    ("df.to_parquet(path='out.parquet')", ["out.parquet"]),
    ("df.to_json(OUT)\n", ["computed file name"]),
    ("OUT = 'data/out.json'\ndf.to_json(OUT)", ["data/out.json"]),
    ("plt.savefig('fig.png', dpi=200)", ["fig.png"]),
    ("np.save('x.npy', a); np.savez('y.npz', a=a)", ["x.npy", "y.npz"]),
    ("torch.save(model.state_dict(), 'm.pt')", ["m.pt"]),
    ("wb.save('book.xlsx')", ["book.xlsx"]),
    ("img.save(f'{name}.png')", []),
    ("json.dump(d, open('d.json', 'w'))", ["d.json"]),
    ("with open('d.json', 'w') as f:\n    json.dump(d, f, indent=2)", ["d.json"]),
    ("pickle.dump(x, fh)", ["computed file name"]),
    ("joblib.dump(m, 'm.joblib')", ["m.joblib"]),
    ("import shutil\nshutil.copy('a', 'b')", ["b"]),
    ("shutil.move('a', 'b'); shutil.rmtree('c')", ["b", "a", "c"]),
    ("import os\nos.remove('a'); os.makedirs('b/c', exist_ok=True)", ["a", "b/c"]),
    ("os.rename('a', 'b')", ["b", "a"]),
    ("os.replace('a.tmp', os.path.join('d', 'a'))", ["d/a", "a.tmp"]),
    ("zipfile.ZipFile('o.zip', 'w')", ["o.zip"]),
    ("pd.ExcelWriter('o.xlsx')", ["o.xlsx"]),
    ("urllib.request.urlretrieve('https://x.org/f', 'f.bin')", ["f.bin"]),
    ("subprocess.run(['cp', 'a', 'b'])", ["b"]),
    ("subprocess.check_call('echo x > y', shell=True)", ["y"]),
    ("os.system('touch z')", ["z"]),
    ("requests.delete('https://api.x.org/items/7')", ["api.x.org/items/7"]),
    ("edit_file_by_replace('/w/a.py', to_replace='x', new_content='y')", ["/w/a.py"]),
    ("%%writefile a.py\nimport os", ["a.py"]),
    ("%%bash\necho a > b", ["b"]),
    ("!pip install x\nimport os\nos.remove('a')", ["pip packages", "a"]),
    ("%matplotlib inline\nplt.savefig('f.png')", ["f.png"]),
    # does not parse: the text decides
    ("print 'python 2'\nopen('a.txt', 'w')", ["a.txt"]),
    ("df.to_csv('cut.csv')\nif True", ["cut.csv"]),
    ("Path('x.txt').write_text(", ["x.txt"]),
]

NOT_WRITES = [
    "open('a.txt').read()",
    "open('a.txt', 'r')",
    "open('a.txt', 'rb')",
    "print(3 > 2)",
    "s = 'a > b'.replace('a', 'b')",
    "df.rename(columns={'a': 'b'})",
    "df.to_csv()",
    "df.to_json(None)",
    "json.dumps(d)",
    "yaml.dump(d)",
    "json.dump(d, sys.stdout)",
    "model.save()",
    "x = d.get('open')",
    "# open('a', 'w')",
    "'''open('a', 'w')'''",
    "def write_text(x): pass",
    "', '.join(['a', 'b'])",
    "requests.post('https://x.org')",
    "subprocess.run(['ls'])",
    "",
]


def effects(code: str, cwd: str = "") -> Effects:
    from gemjax.history.signals import shell

    found = Effects()

    def run_shell(command):
        if isinstance(command, str):
            shell.analyse(command, found, cwd)
        else:
            shell.analyse_words(command, found, cwd)

    analyse(code, found, cwd, run_shell)
    return found


@pytest.mark.parametrize(("code", "expected"), WRITES, ids=[c[:40] for c, _ in WRITES])
def test_writes(code, expected):
    assert list(effects(code).writes) == expected


@pytest.mark.parametrize("code", NOT_WRITES)
def test_not_writes(code):
    assert list(effects(code).writes) == []


@pytest.mark.parametrize(
    ("code", "touches", "sources"),
    [
        ("open('a.txt').read()", ["a.txt"], ["a.txt"]),
        ("pd.read_csv('data/x.csv')", ["data/x.csv"], ["data/x.csv"]),
        ("Path('n.md').read_text()", ["n.md"], ["n.md"]),
        ("requests.get('https://www.x.org/a/')", [], ["x.org/a"]),
        ("BASE = 'https://x.org/q?c='\nurlopen(BASE + quote(c))", [], ["x.org/q?c="]),
        ("urlopen(f'https://x.org/{page}')", [], ["x.org"]),
        ("print('see src/app.py')", [], []),
        ("run('src/app.py')", ["src/app.py"], []),
    ],
)
def test_touches_and_sources(code, touches, sources):
    found = effects(code)
    assert (list(found.touches), list(found.sources)) == (touches, sources)


def test_paths_are_relative_to_the_working_directory():
    assert list(effects("open('a.txt', 'w'); open('/b.txt', 'w')", "/w").writes) == ["/w/a.txt", "/b.txt"]


def test_the_agents_code_does_not_warn_in_our_process():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = effects("import re\nre.compile('\\d+\\s\\.')\nopen('a\\x.txt')\nopen('out.txt', 'w')")
    assert list(found.writes) == ["out.txt"]


@pytest.mark.parametrize(
    "code",
    [
        "x = " + "(" * 5000 + ")" * 5000,
        "x = " + "-" * 50_000 + "1",
        "x" + ".a" * 30_000,
        "x = " + "+".join(["a"] * 20_000),
        "a = 'x' * 3\n" + "".join(f"b{i} = b{i - 1} + b{i - 1}\n" for i in range(1, 3000)) + "open(b2999, 'w')",
        "b0 = 'xxxxxxxx'\n" + "".join(f"b{i} = b{i - 1} + b{i - 1}\n" for i in range(1, 200)) + "open(b199, 'w')",
        "open('\ud800.txt', 'w')",
        "open('a\x00b', 'w')",
        "if x:\n" * 200,
        "f'" + "{" * 3000,
    ],
    ids=range(10),
)
def test_hostile_code_is_survived(code):
    effects(code)
