"""Retrieval from long dialogues: haystacks, rankings, and measures by turn and by session."""
