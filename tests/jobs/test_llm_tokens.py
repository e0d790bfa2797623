import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.handlers.llm.tokens import count_content_tokens, count_tokens, split_text
from sandbox.llm import count_tokens as provider_count

# Words, sentences and paragraphs of several scripts, so that every kind of border occurs.
prose = st.lists(
    st.sampled_from(
        ["word", "Satz.", "Ende! ", " ", "\n", "\n\n", "\r\n\r\n", "日本語。", "🙂", "é", '"so." ', "x" * 50]
    )
).map("".join)
texts = st.one_of(st.text(), prose)


@given(text=texts, max_tokens=st.integers(4, 200), bytes_per_token=st.sampled_from([1.0, 2.5, 4.0]))
def test_the_parts_joined_are_the_text_and_none_is_above_the_budget(text, max_tokens, bytes_per_token):
    parts = split_text(text, max_tokens, bytes_per_token=bytes_per_token)
    assert "".join(parts) == text
    assert all(count_tokens(part, bytes_per_token=bytes_per_token) <= max_tokens for part in parts)


@given(text=texts, max_tokens=st.integers(1, 50))
def test_every_part_but_the_last_has_at_least_half_of_the_characters_that_would_have_fitted(text, max_tokens):
    """Else a text of many short paragraphs would take many more calls than it needs."""
    rest = text
    for part in split_text(text, max_tokens)[:-1]:
        fitting = max(size for size in range(len(rest) + 1) if count_tokens(rest[:size]) <= max_tokens)
        assert len(part) >= fitting / 2
        rest = rest[len(part) :]


@given(text=texts)
def test_a_text_that_fits_is_one_part(text):
    assert split_text(text, max(1, count_tokens(text))) == [text]


def test_a_part_ends_with_a_paragraph_where_one_fills_half_of_it():
    text = "First paragraph, which is long.\n\nSecond one. It has two sentences."
    assert split_text(text, 12) == ["First paragraph, which is long.\n\n", "Second one. It has two sentences."]


def test_otherwise_with_a_sentence_or_a_word_or_in_the_middle_of_one():
    assert split_text("One sentence here. Another follows it", 6) == ["One sentence here. ", "Another follows it"]
    assert split_text("several words without any stop", 5) == ["several words ", "without any stop"]
    assert split_text("x" * 20, 3) == ["x" * 12, "x" * 8]


def test_a_character_is_never_cut():
    assert split_text("🙂" * 3, 1) == ["🙂", "🙂", "🙂"]
    assert split_text("日本語", 1) == ["日", "本", "語"]


def test_a_budget_below_one_character_is_refused():
    with pytest.raises(ValueError, match="one character"):
        split_text("text", 3, bytes_per_token=1.0)


@given(text=st.text())
def test_tokens_are_estimated_as_the_sandbox_counts_them(text):
    assert count_tokens(text) == provider_count(text)


def test_contents_count_their_texts_together_and_a_flat_rate_for_what_is_no_text():
    contents = [
        {"role": "user", "parts": [{"text": "12345"}, {"inlineData": {"data": "AAAA"}}]},
        {"parts": [{"text": "1"}]},
    ]
    assert count_content_tokens(contents) == 2 + 258
