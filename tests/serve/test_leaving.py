"""The command ends although a thread hangs, and says that it ended well."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

CODE = """
import sys, threading, time
from gemjax.commands.serve import THREADS, _leave
if "{kind}" != "none":
    threading.Thread(target=time.sleep, args=(60,), name="{kind}", daemon={daemon}).start()
print("done")
sys.exit(_leave(0, patience=0.2))
"""


@pytest.mark.parametrize("kind", ["none", "gemjax-serve_0", "an encoder"])
@pytest.mark.parametrize("daemon", [True, False])
def test_it_leaves(kind, daemon):
    code = CODE.format(kind=kind, daemon=daemon)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=50)
    assert (done.returncode, done.stdout) == (0, "done\n")
