"""Readers of recorded agent runs, one small module a format; the first whose `matches` says yes reads the file."""

from gemjax.evaluation.replay.readers import (
    claude_code,
    cochise,
    codex,
    gemini_cli,
    gemini_contents,
    inspect_eval,
    langgraph,
    mini_swe_agent,
    opencode,
    openhands,
    pi,
    request,
    swe_agent,
    tau2_bench,
    tau_bench,
)
from gemjax.evaluation.replay.readers.recording import Recording, RecordingReader

__all__ = ["READERS", "Recording", "RecordingReader"]

# Most specific first: a mini-swe-agent file also has `messages`, as a plain request has.
READERS: tuple[RecordingReader, ...] = (
    claude_code,
    codex,
    pi,
    cochise,
    mini_swe_agent,
    gemini_cli,
    opencode,
    openhands,
    swe_agent,
    tau_bench,
    tau2_bench,
    langgraph,
    inspect_eval,
    gemini_contents,
    request,
)
