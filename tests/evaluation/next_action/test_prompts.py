"""What the model reads: whole pieces in order, never the action that it is asked about."""

import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from gemjax.errors import ConfigError
from gemjax.evaluation.gem.checkpoints import moments
from gemjax.evaluation.next_action.prompts import ACTION_TOKENS, Prompts, fair_shares
from gemjax.evaluation.next_action.sampling import stratified
from gemjax.evaluation.replay import load
from tests.evaluation.gem.conftest import record


def call(i, command):
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {"id": f"c{i}", "type": "function", "function": function}


def marked(blocks=18):
    """Every call and every result has a word of its own; text and a later user message lie between blocks."""
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "repair it"}]
    for i in range(blocks):
        messages.append({"role": "assistant", "content": f"think-{i}.", "tool_calls": [call(i, f"do-{i}.")]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"seen-{i}."})
        if i == 4:
            messages += [{"role": "assistant", "content": "half way"}, {"role": "user", "content": "go on"}]
    return messages


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("marked") / "run.json"
    record(path, marked())
    (trajectory,) = load(path).trajectories
    return moments(trajectory)


def text(model, ids):
    return model.tokenizer.decode(list(ids))


def test_the_full_history_as_it_reads(reader, run):
    turn, parsed = run[0]
    prompts = Prompts(reader, 500)
    expected = "SYSTEM\nbe brief\n\nUSER\nrepair it\n\n"
    for i in range(16):
        expected += f'ASSISTANT_TEXT\nthink-{i}.\n\nACTION\nbash {{"command": "do-{i}."}}\n\nOBSERVATION\nseen-{i}.\n\n'
        if i == 4:
            expected += "ASSISTANT_TEXT\nhalf way\n\nUSER\ngo on\n\n"
    ids = prompts.prompt(parsed, [True] * 16)
    assert text(reader, ids) == expected + "ACTION\n"
    assert len(ids) == prompts.full_length(parsed)
    assert text(reader, prompts.action(turn)) == 'bash {"command": "do-16."}'
    nothing = text(reader, prompts.prompt(parsed, [False] * 16))
    assert nothing == "SYSTEM\nbe brief\n\nUSER\nrepair it\n\nASSISTANT_TEXT\nhalf way\n\nUSER\ngo on\n\nACTION\n"


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_selection_is_a_part_of_the_full_history(reader, run, data):
    at = data.draw(st.integers(0, len(run) - 1))
    cap = data.draw(st.sampled_from([16, 24, 40, 400]))
    turn, parsed = run[at]
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(parsed.blocks), max_size=len(parsed.blocks))))
    prompts = Prompts(reader, cap)
    full, some, none = (list(prompts.prompt(parsed, mask)) for mask in (kept | True, kept, kept & False))
    for part, whole in ((some, full), (none, some)):
        rest = iter(whole)
        assert all(token in rest for token in part)
    # Pieces do not depend on one another: lengths add up, each at most the cap.
    alone = [len(prompts.prompt(parsed, np.arange(len(kept)) == i)) - len(none) for i in range(len(kept))]
    assert max(alone) <= cap
    assert len(some) == len(none) + sum(size for size, keep in zip(alone, kept, strict=True) if keep)
    # Words that are in the recording from here on only.
    shown = text(reader, full)
    assert not any(f"{word}-{len(kept)}." in shown for word in ("do", "seen", "think"))
    if cap == 400:
        for i, keep in enumerate(kept):
            assert (f"do-{i}." in text(reader, some)) == keep and f"seen-{i}." in shown
    assert f"do-{len(kept)}." in text(reader, prompts.action(turn))


def test_other_wire_formats(reader, tmp_path):
    anthropic = [{"role": "user", "content": "start here"}]
    responses = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "start here"}]}]
    for i in range(18):
        use = {"type": "tool_use", "id": f"t{i}", "name": "ls", "input": {"at": f"do-{i}."}}
        found = {"type": "tool_result", "tool_use_id": f"t{i}", "content": f"seen-{i}."}
        anthropic += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [found]}]
        ask = {"type": "function_call", "call_id": f"t{i}", "name": "ls", "arguments": f'{{"at": "do-{i}."}}'}
        responses += [ask, {"type": "function_call_output", "call_id": f"t{i}", "output": f"seen-{i}."}]
    (tmp_path / "a.json").write_text(json.dumps({"model": "m", "max_tokens": 9, "messages": anthropic}))
    (tmp_path / "r.json").write_text(json.dumps({"model": "m", "input": responses}))
    loaded = load(tmp_path)
    assert {t.format for t in loaded.trajectories} == {"anthropic", "responses"}
    prompts = Prompts(reader, 100)
    for trajectory in loaded.trajectories:
        turn, parsed = moments(trajectory)[1]
        kept = np.arange(17) == 5
        shown = text(reader, prompts.prompt(parsed, kept))
        assert shown.startswith("USER\nstart here\n\nACTION\nls ") and shown.endswith(
            "OBSERVATION\nseen-5.\n\nACTION\n"
        )
        assert "do-17." in text(reader, prompts.action(turn))


def test_shortened_pieces_keep_every_section_and_both_ends(reader, tmp_path):
    words = " ".join(f"w{i}" for i in range(400))
    messages = marked()
    messages[2]["content"] = f"begin-text {words} end-text"
    messages[3]["content"] = f"begin-seen {words} end-seen"
    messages[-2]["tool_calls"] = [call(17, words)]
    record(tmp_path / "run.json", messages)
    (trajectory,) = load(tmp_path / "run.json").trajectories
    found = moments(trajectory)
    prompts = Prompts(reader, 120)
    turn, parsed = found[-1]
    kept = np.arange(len(parsed.blocks)) == 0
    shown = text(reader, prompts.prompt(parsed, kept))
    for part in ("ASSISTANT_TEXT\nbegin", "end-text\n\n", "do-0.", "OBSERVATION\nbegin", "end-seen\n\n"):
        assert part in shown
    assert shown.count("[...]") == 2
    assert len(prompts.action(turn)) == ACTION_TOKENS
    assert text(reader, prompts.action(turn)).startswith('bash {"command": "w0 w1')


@given(st.lists(st.integers(0, 40), max_size=6), st.integers(0, 120))
def test_fair_shares_are_dealt_one_by_one(sizes, total):
    dealt = [0] * len(sizes)
    while total > 0 and any(d < s for d, s in zip(dealt, sizes, strict=True)):
        at = min((i for i in range(len(sizes)) if dealt[i] < sizes[i]), key=lambda i: (dealt[i], i))
        dealt[at] += 1
        total -= 1
    assert fair_shares(sizes, sum(dealt) + total) == dealt


def test_a_cap_below_which_nothing_is_left():
    with pytest.raises(ConfigError, match="block_tokens = 15; expected at least 16"):
        Prompts(None, 15)


@given(
    st.dictionaries(st.text(max_size=4), st.integers(1, 9), max_size=6),
    st.integers(0, 40),
    st.integers(0, 3),
)
def test_samples_are_even_and_grow(sizes, n, seed):
    available = {name: list(range(100, 100 + size)) for name, size in sizes.items()}
    drawn = stratified(available, n, seed)
    assert len(drawn) == len(set(drawn)) == min(n, sum(sizes.values()))
    assert all(row in available[name] for name, row in drawn)
    taken = {name: sum(1 for other, _ in drawn if other == name) for name in sizes}
    for name, count in taken.items():
        assert all(count >= other - 1 for other in taken.values()) or count == sizes[name]
    assert stratified(dict(reversed(available.items())), n, seed) == drawn
    assert drawn == stratified(available, n + 3, seed)[: len(drawn)]
    for name in sizes:
        alone = stratified({name: available[name]}, taken[name], seed)
        assert alone == [pair for pair in drawn if pair[0] == name]


def test_the_seed_changes_the_sample():
    available = {f"run-{i}": list(range(30)) for i in range(9)}
    draws = [stratified(available, 9, seed) for seed in range(4)]
    assert len({tuple(sorted(draw)) for draw in draws}) == 4
    # No position is favoured: over many seeds each of the 30 is drawn about as often as another.
    rows = [row for seed in range(400) for _, row in stratified(available, 9, seed)]
    counts = np.bincount(rows, minlength=30)
    assert np.abs(counts - 120).max() < 6 * np.sqrt(120)
