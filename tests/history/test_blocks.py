"""Wire formats into blocks: which messages make a block, and how long a request is."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.history.blocks import Reader, parse
from tests.history.requests import BUILDERS, anthropic, anthropic_block, chat, chat_block, responses


def spans(request, format="auto"):
    return [b.messages for b in parse(request, format).blocks]


@pytest.mark.parametrize("name", BUILDERS)
def test_every_complete_exchange_is_a_block(name):
    parsed = parse(BUILDERS[name](5))
    assert parsed.problems == []
    assert parsed.format.name == ("chat" if name == "legacy" else name)
    assert len(parsed.blocks) == 5
    covered = [i for b in parsed.blocks for i in b.messages]
    assert covered == sorted(set(covered))
    assert [b.index for b in parsed.blocks] == list(range(5))


@pytest.mark.parametrize("name", BUILDERS)
def test_length_equals_serialising_again(name):
    request = BUILDERS[name](4)
    request["tools"] = [{"name": "täst", "description": '"quoted"\n'}]
    parsed = parse(request)
    assert parsed.chars == len(json.dumps(request, ensure_ascii=False, separators=(",", ":")))
    bare = request.get("messages") or request["input"]
    assert parse(bare).chars == len(json.dumps(bare, ensure_ascii=False, separators=(",", ":")))


def test_selection_text_has_the_papers_sections_and_omits_absent_ones():
    block = parse(anthropic(1)).blocks[0].content
    assert block.selection_text == (
        "ASSISTANT_REASONING\nthink 0\n\nASSISTANT_TEXT\nstep 0\n\n"
        'ACTION\nBash {"command":"echo 0"}\n\nOBSERVATION\noutput 0'
    )
    plain = parse(chat(1)).blocks[0].content.selection_text
    assert plain.startswith("ACTION\nbash ") and "ASSISTANT" not in plain


def test_selection_text_keeps_beginning_and_end():
    request = chat(0)
    request["messages"] += chat_block(0, result="A" * 20_000 + "END")
    text = parse(request).blocks[0].content.selection_text
    assert len(text) == 12_000 and text.startswith("ACTION") and text.endswith("END")


def test_images_become_a_typed_placeholder():
    request = anthropic(1)
    data = "iVBORw0KGgo" * 1000
    request["messages"][-1]["content"][0]["content"] = [
        {"type": "text", "text": "a plot"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
    ]
    text = parse(request).blocks[0].content.selection_text
    assert text.endswith("OBSERVATION\na plot\n[image image/png]") and data[:40] not in text


def test_parallel_calls_answered_out_of_order_are_one_block():
    request = chat(0)
    turn = chat_block(0, ids=["a", "b", "c"])
    request["messages"] += [turn[0], turn[3], turn[1], turn[2]]
    assert spans(request) == [(2, 3, 4, 5)]


def test_responses_turn_with_parallel_calls_is_one_block():
    request = responses(0)
    request["input"] += [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "two at once"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": "*** Begin Patch"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "ok"},
        {"type": "function_call_output", "call_id": "a", "output": "ok"},
    ]
    (block,) = parse(request).blocks
    assert block.messages == (1, 2, 3, 4, 5, 6)
    assert [c.name for c in block.content.calls] == ["f", "apply_patch"] and block.content.text == "two at once"


def test_anthropic_results_beside_other_content_are_conversation():
    request = anthropic(3)
    request["messages"][4]["content"].append({"type": "text", "text": "and please hurry"})
    assert spans(request) == [(1, 2), (5, 6)]
    assert parse(request).problems == []


def test_anthropic_results_spread_over_consecutive_user_messages():
    request = anthropic(0)
    call = {"type": "tool_use", "name": "f", "input": {}}
    request["messages"] += [
        {"role": "assistant", "content": [{**call, "id": "a"}, {**call, "id": "b"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": ""}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": ""}]},
    ]
    assert spans(request) == [(1, 2, 3)]


def test_a_server_tool_keeps_its_exchange_open_or_answered():
    request = anthropic(2)
    server = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}}
    request["messages"][1]["content"].insert(0, server)
    assert spans(request) == [(3, 4)]
    request["messages"][1]["content"].insert(1, {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []})
    assert spans(request) == [(3, 4)]
    assert parse(request).warnings == []


@pytest.mark.parametrize("name", BUILDERS)
def test_a_trailing_exchange_in_flight_is_no_block_and_no_problem(name):
    request = BUILDERS[name](3)
    key = "input" if name == "responses" else "messages"
    request[key].pop()
    parsed = parse(request)
    assert parsed.problems == [] and len(parsed.blocks) == 2
    assert parsed.latest is not None and parsed.latest.calls
    assert parsed.last_block is None


def test_the_block_that_ends_the_request_is_known():
    request = chat(3)
    assert parse(request).last_block == 2
    request["messages"].append({"role": "user", "content": "next"})
    assert parse(request).last_block is None


def test_restarted_ids_and_equal_blocks_have_keys_of_their_own():
    request = chat(0)
    for _ in range(3):
        request["messages"] += chat_block(0, ids=["call_0"])
    keys = [b.key for b in parse(request).blocks]
    assert len(set(keys)) == 3 and len({k.split("#")[0] for k in keys}) == 1


def test_block_keys_do_not_depend_on_key_order():
    request = chat(2)
    turned = copy.deepcopy(request)
    turned["messages"] = [dict(reversed(m.items())) for m in turned["messages"]]
    assert [b.key for b in parse(request).blocks] == [b.key for b in parse(turned).blocks]


def test_reader_reads_a_message_again_when_its_content_changed_in_place():
    reader, request = Reader(), chat(2)
    first = reader.parse(request)
    request["messages"][3]["content"] = "other output"
    second = reader.parse(request)
    assert first.blocks[0].key != second.blocks[0].key and first.blocks[1].key == second.blocks[1].key
    assert second.blocks[0].content.results[0].text == "other output"
    assert second.chars == parse(request).chars


def test_reader_forgets_what_the_latest_request_no_longer_holds():
    reader = Reader()
    reader.parse(chat(50))
    reader.parse(chat(1))
    assert len(reader._messages) == 4 and len(reader._contents) == 1


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(BUILDERS)), st.randoms(use_true_random=False))
def test_reading_a_history_as_it_grows_and_changes_equals_reading_it_afresh(name, rng):
    """The reader's memory of earlier requests must not show in what it returns."""
    reader = Reader()
    request = BUILDERS[name](3)
    key = "input" if name == "responses" else "messages"
    pool = list(BUILDERS[name](12)[key])
    for _ in range(25):
        messages = request[key]
        change = rng.randrange(6)
        if change <= 1:
            at = rng.randrange(len(pool))
            messages = messages + pool[at : at + rng.randrange(1, 5)]
        elif change == 2 and len(messages) > 2:
            messages = messages[: rng.randrange(1, len(messages))]
        elif change == 3:
            i = rng.randrange(len(messages))
            messages = [*messages[:i], rng.choice(pool), *messages[i + 1 :]]
        elif change == 4:
            messages = [*messages, {"role": "user", "content": f"say {rng.randrange(3)}"}]
        else:
            i = rng.randrange(len(messages))
            messages = [m for k, m in enumerate(messages) if k != i] or messages
        request = {**request, key: messages, "temperature": rng.choice([0, 1])}
        here, fresh = reader.parse(request, "auto"), parse(request, "auto")
        for field in ("blocks", "latest", "last_block", "chars", "problems", "warnings", "records"):
            assert getattr(here, field) == getattr(fresh, field), field


def test_detection():
    assert parse([{"role": "user", "content": "x"}]).format.name == "chat"
    assert parse(responses(1)["input"]).format.name == "responses"
    assert parse(anthropic(1)["messages"]).format.name == "anthropic"
    assert parse({"messages": anthropic_block(0)}).format.name == "anthropic"
    assert parse({"input": "hello"}).format.name == "responses" and parse({"input": "hello"}).problems == []
