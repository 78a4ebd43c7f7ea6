"""Readers of recorded agent runs, one small module a format; the first whose `matches` says yes reads the file."""

from gemjax.evaluation.replay.readers import claude_code, codex, mini_swe_agent, request, swe_agent, tau_bench
from gemjax.evaluation.replay.readers.recording import Reader, Recording
from gemjax.evaluation.replay.readers.unsupported import name_of_unsupported

__all__ = ["READERS", "Reader", "Recording", "name_of_unsupported"]

# Most specific first: a mini-swe-agent file also has `messages`, as a plain request has.
READERS: tuple[Reader, ...] = (claude_code, codex, mini_swe_agent, swe_agent, tau_bench, request)
