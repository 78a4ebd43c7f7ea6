"""Messages are taken out of a body without touching a byte of what stays."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.integrations.document import Document

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
LAYOUTS = st.sampled_from([(", ", ": "), (",", ":"), (" ,\n\t", "  : ")])


@settings(max_examples=50)
@given(
    st.dictionaries(st.text(max_size=5), VALUES, max_size=4),
    st.lists(VALUES, max_size=8),
    LAYOUTS,
    st.booleans(),
    st.data(),
)
def test_the_rest_is_what_it_was(fields, items, layout, ascii_only, data):
    request = {**fields, "messages": items, **{f"z{k}": v for k, v in fields.items()}}
    texts = [json.dumps(i, ensure_ascii=ascii_only, separators=layout) for i in items]
    frame = {k: json.dumps(v, ensure_ascii=ascii_only, separators=layout) for k, v in request.items()}
    frame["messages"] = "[ " + layout[0].join(texts) + "\n]"
    body = " {" + layout[0].join(f"{json.dumps(k)}{layout[1]}{v}" for k, v in frame.items()) + "} "
    try:
        raw = body.encode()
    except UnicodeEncodeError:
        return  # lone surrogates that are not escaped are no UTF-8
    document = Document(raw, "messages")
    assert document.value == request
    assert document.without(range(len(items))) == raw
    kept = sorted(data.draw(st.sets(st.integers(0, len(items) - 1)))) if items else []
    frame["messages"] = "[ " + layout[0].join(texts[i] for i in kept) + "\n]"
    wanted = " {" + layout[0].join(f"{json.dumps(k)}{layout[1]}{v}" for k, v in frame.items()) + "} "
    assert document.without(kept).decode() == wanted


def test_a_changed_message_and_a_further_field_are_written_and_nothing_else():
    document = Document(b'{"m": [{"a":1},  {"b":2}], "t" : 1 }', "m")
    request = {**document.value, "m": [document.value["m"][0], {"b": "é"}], "t": 2, "new": [1]}
    assert document.rebuilt(request, [0, None]).decode() == '{"m": [{"a":1}, {"b":"é"}], "t" : 2 ,"new":[1]}'
    with pytest.raises(ValueError, match="gone"):
        document.rebuilt({"m": []}, [])


BAD = [
    b"",
    b"[]",
    b"{",
    b'{"m"}',
    b'{"m": [1,]}',
    b'{"m": [1] "t": 2}',
    b'{"m": []} x',
    b'{"m": 1}',
    b"\xff",
    b'{"x": []}',
]
BAD += [b'{"m": [], "m": []}', b'{"m": [1}', b'{"m": ' + b"[" * 100_000, b"\xef\xbb\xbf{}", b'{"m": [], }', b"null"]


@pytest.mark.parametrize("body", BAD)
def test_what_is_no_such_document_is_refused(body):
    with pytest.raises(ValueError):
        Document(body, "m")
