"""Find memories in a bank by meaning."""

import argparse

from gemjax.commands.files import json_value, print_json
from gemjax.commands.options import add_encoder_options, encoder_from, start_jax
from gemjax.errors import RequestError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bank", metavar="BANK", help="directory that `gemjax index` wrote")
    parser.add_argument("query", metavar="QUERY", help="text to search for")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="how many (default 10)")
    parser.add_argument("--alpha", type=float, metavar="X", help="weight of the cosine, 0 to 1 (default: the bank's)")
    parser.add_argument(
        "--metric", choices=("fused", "cosine", "riemannian", "hybrid"), help="what ranks (default: as the bank)"
    )
    parser.add_argument("--min-score", type=float, metavar="X", help="drop hits below this score")
    parser.add_argument("--where", metavar="JSON", help='only memories whose metadata has these values: {"k": "v"}')
    parser.add_argument("--explain", action="store_true", help="say where each score comes from")
    parser.add_argument("--json", action="store_true", help="print one object")
    add_encoder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    where = None
    if arguments.where is not None:
        where = json_value(arguments.where.encode("utf-8", "surrogatepass"), "--where")
        if not isinstance(where, dict):
            raise RequestError("--where must be a JSON object")
    start_jax(arguments)

    from gemjax.memory import MemoryBank

    bank = MemoryBank.load(arguments.bank, encoder_from(arguments))
    hits = bank.search(
        arguments.query, arguments.k, where, arguments.min_score, alpha=arguments.alpha, metric=arguments.metric
    )
    if arguments.json:
        print_json(
            {
                "query": arguments.query,
                "metric": arguments.metric or bank.config.ranking,
                "hits": [hit.to_dict() for hit in hits],
            }
        )
        return 0
    if not hits:
        print("nothing found")
    if hits and hits[0].note:
        print(f"note: {hits[0].note}")
    for hit in hits:
        text = " ".join(hit.text.split())
        riemannian = "" if hit.riemannian is None else f" riemannian {hit.riemannian:+.3f}"
        print(f"{hit.rank:3} {hit.score:+.4f}  {hit.id}  {text[:100]}  (cosine {hit.cosine:+.3f}{riemannian})")
        if arguments.explain:
            print(bank.explain(hit))
    return 0
