"""Made-up conversations in LoCoMo's schema whose answers stand in their turns."""

import json
from pathlib import Path
from typing import Any

CITIES = ("Lisbon", "Oslo", "Cairo", "Quito", "Hanoi", "Lagos", "Perth", "Turin")


def conversation(number: int, turns: int = 12, kinds: tuple[int, ...] = (1, 2, 4)) -> dict[str, Any]:
    """One conversation: turn i tells of a city, question i asks for it, one kind after the other."""
    said, asked = [], []
    for i in range(turns):
        city = CITIES[(i + number) % len(CITIES)]
        said.append(
            {
                "speaker": "Ann" if i % 2 else "Bob",
                "dia_id": f"D1:{i + 1}",
                "text": f"Wow! In week {i} of {2000 + number} I really went to {city} because of the weather. And you?",
            }
        )
        asked.append(
            {
                "question": f"Where was the trip of week {i}?",
                "answer": f"the city of {city} in {2000 + number}",
                "evidence": [f"D1:{i + 1}"],
                "category": kinds[i % len(kinds)],
            }
        )
    asked.append({"question": "Who never came?", "adversarial_answer": "Eve", "evidence": ["D1:1"], "category": 5})
    return {"sample_id": f"made-{number}", "conversation": {"session_1": said}, "qa": asked}


def write(path: Path, *conversations: dict[str, Any]) -> Path:
    """A data file; three conversations unless told."""
    path.write_text(json.dumps(list(conversations) or [conversation(i) for i in range(3)]))
    return path
