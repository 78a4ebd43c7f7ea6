"""What a distilled conversation holds of answers to questions that nobody has asked yet.

    python -m gemjax.evaluation.tuning.unasked PATH

PATH is a file in LoCoMo's schema. Each whole conversation is distilled without query and scores; printed is the share
of the gold answers' words that is left, mean over the answered questions of a conversation, then over conversations,
beside the text's beginning, its end, and sentences in the order of their mean sensitivity (the paper's criterion).
"""

import argparse
import statistics
from pathlib import Path

from gemjax.distill import DistillConfig, Distiller, EvidenceSelector, Turn
from gemjax.distill.baselines import Truncation
from gemjax.distill.shortener import Compressor
from gemjax.evaluation.compression import header_length, measurable, words
from gemjax.evaluation.locomo import load_locomo
from gemjax.evaluation.remembering import RememberingModel
from gemjax.models.language import default_language_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--budgets", type=lambda text: [int(x) for x in text.split(",")], default=[500, 2000, 5000])
    parser.add_argument("--cache", type=Path, help="folder for what the model reads")
    arguments = parser.parse_args()
    model = RememberingModel(default_language_model(), arguments.cache)
    conversations = load_locomo(arguments.path)
    methods: dict[str, Compressor] = {
        "the beginning": Truncation(model, "first"),
        "the end": Truncation(model, "last"),
        "mean sensitivity": Distiller(model, DistillConfig(order="sensitivity")),
        "selection": EvidenceSelector(tokenizer=model),
    }
    for budget in arguments.budgets:
        for name, method in methods.items():
            shares = []
            for conversation in conversations:
                turns = [Turn(text, header=header_length(text)) for text in conversation.texts]
                left = set(words(method.distill(turns, budget).text))
                answers = [set(words(q.answer)) for q in conversation.questions if measurable(q)]
                shares.append(statistics.fmean(len(answer & left) / len(answer) for answer in answers))
            each = " ".join(f"{share:.3f}" for share in shares)
            print(f"{budget:6} {name:18} {statistics.fmean(shares):.3f}  ({each})", flush=True)


if __name__ == "__main__":
    main()
