"""Sources: pages, files and searches under one key each."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.history.signals.outputs import announced_files
from gemjax.history.signals.patches import patched_paths
from gemjax.history.signals.sources import normalise_url, search_key


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://www.example.com/a/b/", "example.com/a/b"),
        ("http://Example.COM:80/a#top", "example.com/a"),
        ("https://example.com:443", "example.com"),
        ("https://example.com:8443/x", "example.com:8443/x"),
        ("https://user:pw@example.com/a", "example.com/a"),
        ("https://example.com/?utm_source=a&utm_campaign=b", "example.com"),
        ("https://youtube.com/watch?v=abc&feature=share&t=3", "youtube.com/watch?v=abc&t=3"),
        ("https://example.com/a?id=7&fbclid=z#x", "example.com/a?id=7"),
        ("//cdn.example.com/x.js", "cdn.example.com/x.js"),
        ("www.example.com/Path/Case", "example.com/Path/Case"),
        ("localhost:8000/api", "localhost:8000/api"),
        ("https://ex.com//a///b", "ex.com/a/b"),
        ('"https://ex.com/a"', "ex.com/a"),
        ("", ""),
        ("https://", ""),
    ],
)
def test_one_key_for_one_page(url, key):
    assert normalise_url(url) == key


hosts = st.from_regex(r"[a-z]{1,8}\.(com|org|io)", fullmatch=True)
paths = st.from_regex(r"(/[a-zA-Z0-9_.-]{1,6}){0,3}", fullmatch=True)


@settings(max_examples=100, deadline=None)
@given(
    hosts, paths, st.booleans(), st.booleans(), st.sampled_from(["", "#x", "?utm_source=y", "?gclid=1&utm_medium=z#q"])
)
def test_spellings_of_a_page_that_do_not_matter(host, path, www, secure, tail):
    url = f"http{'s' * secure}://{'www.' * www}{host}{path}/{tail}"
    assert normalise_url(url) == normalise_url(f"https://{host}{path}") == host + path.rstrip("/")


def test_searches_differ_by_their_words_only():
    assert search_key(" JAX  Sharding\n") == search_key("jax sharding") == "search: jax sharding"
    assert search_key("  ") == ""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Saved to out/a.png", ["out/a.png"]),
        ("[*] Wrote credential cache to 'x.ccache'", ["x.ccache"]),
        ("Model saved as model.pt.\nExported: data/x.csv", ["model.pt", "data/x.csv"]),
        ("saved 3 items in total", []),
        ("I was written in 1999", []),
        ("nothing", []),
    ],
)
def test_announced_files(text, names):
    assert announced_files(text) == names


def test_patched_paths():
    git = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n--- /dev/null\n+++ b/new.py\t2024-01-01\n"
    assert patched_paths(git) == ["x.py", "new.py"]
    assert patched_paths("*** Add File: a b.txt\n+x\n*** Move to: c.txt\n") == ["a b.txt", "c.txt"]
    assert patched_paths("nothing") == []
