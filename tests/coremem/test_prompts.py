"""Prompts are data: checked when they are made, filled once, and closed to what users write."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemjax.coremem.evidence import Evidence, block
from gemjax.coremem.prompts import CONTINUED, PromptTemplate, folded
from gemjax.errors import ConfigError

TODAY = dt.date(2024, 2, 1)


def evidence(text: str, when: dt.datetime | None = None, speaker: str | None = None) -> Evidence:
    return Evidence("a", text, (), "s", speaker, when, 1, 0.0, 0.0, None, None, kept=text)


def test_the_default_prompt():
    monday = dt.datetime(2023, 5, 8, 13, 56, tzinfo=dt.UTC)
    template = PromptTemplate()
    memories = block([evidence("Ann: I paint.", monday), evidence("Bob: Hi\nthere {question}")], template)
    assert memories == "[8 May 2023] Ann: I paint.\nBob: Hi\n  there {question}"
    system, user = template.messages(memories, "What does {memories} paint?\r\nSay {{x}} ", TODAY)
    assert system["role"] == "system" and "I don't know" in system["content"]
    assert user == {
        "role": "user",
        "content": "Memories, oldest first:\n[8 May 2023] Ann: I paint.\nBob: Hi\n  there {question}\n\n"
        "Today is 1 February 2024.\nQuestion: What does {memories} paint?\n  Say {{x}}",
    }


def test_the_papers_prompt():
    memories = block([evidence("Ann: I paint.", dt.datetime(2023, 5, 8, tzinfo=dt.UTC))], PromptTemplate.paper())
    assert PromptTemplate.paper().messages(memories, "What?", TODAY) == [
        {
            "role": "user",
            "content": "Based on the following conversation context, answer the question concisely.\n"
            "Context: Ann: I paint.\nQuestion: What?\nAnswer:",
        }
    ]


def test_every_place_is_filled():
    template = PromptTemplate(
        system="It is {today}, {{braces}}.",
        user="{question} | {memories}",
        memory="{number}. {weekday} {date} {time} {session} {speaker} <{text}>",
        undated="{number}. {session} {speaker} <{text}>",
    )
    when = dt.datetime(2023, 5, 8, 9, 5, tzinfo=dt.UTC)
    lines = block([evidence("x", when, "Ann"), evidence("y")], template)
    assert lines == "1. Monday 8 May 2023 09:05 s Ann <x>\n2. s  <y>"
    assert template.messages(lines, "q", TODAY)[0]["content"] == "It is 1 February 2024, {braces}."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"user": "{question}"}, r"user must name \{memories\} once, it does 0 times"),
        ({"user": "{question}{memories}{memories}"}, "2 times"),
        ({"user": "{question} {memories} {name}"}, r"user names \{name\}"),
        ({"system": "{question}"}, r"system names \{question\}"),
        ({"undated": "{date} {text}"}, r"undated names \{date\}"),
        ({"memory": "{text}\nx"}, "memory must be a single line"),
        ({"system": "a { b"}, "single '{' at 2"),
        ({"system": "a } b"}, "single '}' at 2"),
        ({"system": "{0}"}, "single '{'"),
        ({"system": "{today.__class__}"}, "single '{'"),
        ({"system": None}, "system must be a string"),
    ],
)
def test_a_template_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        PromptTemplate(**changes)


def test_a_template_from_a_mapping():
    assert PromptTemplate.from_dict({"unknown": "No idea"}) == PromptTemplate(unknown="No idea")
    for wrong, message in (
        ({"sytem": ""}, "no part 'sytem'"),
        ([], "must be an object"),
        ({"user": 1}, "user must be"),
    ):
        with pytest.raises(ConfigError, match=message):
            PromptTemplate.from_dict(wrong)


LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
HOSTILE = st.text(st.sampled_from("ab:[]{} '\"<|>" + LINE_ENDS) | st.characters(exclude_categories=["Cs"]), max_size=60)


@given(st.lists(HOSTILE.filter(lambda text: text.strip()), min_size=1, max_size=6), HOSTILE)
def test_nothing_that_is_written_adds_a_line_to_the_template(texts, question):
    """Lines that begin where the template's do are the template's, however memories and question are written."""
    template = PromptTemplate(memory="- {text}", undated="- {text}")
    parts = [evidence(text) for text in texts]
    memories = block(parts, template)
    content = template.messages(memories, question, TODAY)[1]["content"]
    own = [line for line in content.splitlines() if not line.startswith(CONTINUED)]
    heads = [line.split(" ")[0] for line in own]
    assert heads == ["Memories,", *["-"] * len(texts), "", "Today", "Question:"]
    # Nothing is lost either: taking the marks off gives every text back, line ends as one kind.
    assert all(folded(text) in content for text in texts)


def test_what_counts_as_not_knowing():
    template = PromptTemplate()
    for said in ("I don't know", "I don\u2019t know.", " i don't KNOW, sorry", "'I don't know'"):
        assert template.says_unknown(said) == (said[0] != "'"), said
    assert not template.says_unknown("She said: I don't know")
    assert not PromptTemplate.paper().says_unknown("I don't know")
