"""Counters in Prometheus text. Labels are endpoint, status and outcome: never a name, a key or content."""

import threading
from collections import Counter

from gemjax.serve.ledger import Ledger

_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)


class Metrics:
    """What the proxy counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.responses: Counter[tuple[str, str]] = Counter()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[str] = Counter()
        self.seconds: Counter[float] = Counter()
        self.seconds_sum = 0.0
        self.in_flight = 0

    def responded(self, endpoint: str, status: int) -> None:
        """One response, by the upstream's status."""
        with self._lock:
            self.responses[endpoint, str(status)] += 1

    def shortened(self, endpoint: str, outcome: str, seconds: float) -> None:
        """One request that was looked into, and how long that took."""
        with self._lock:
            self.outcomes[endpoint, outcome] += 1
            self.seconds_sum += seconds
            self.seconds[next((b for b in _BOUNDS if seconds <= b), float("inf"))] += 1

    def failed(self, kind: str) -> None:
        """One request that the upstream did not answer, or not to its end."""
        with self._lock:
            self.errors[kind] += 1

    def text(self, ledger: Ledger) -> str:
        """The exposition format, version 0.0.4."""
        total, accounts = ledger.snapshot()
        with self._lock:
            lines = ["# TYPE gemjax_responses_total counter"]
            for (endpoint, status), n in sorted(self.responses.items()):
                lines.append(f'gemjax_responses_total{{endpoint="{endpoint}",status="{status}"}} {n}')
            lines.append("# TYPE gemjax_shortenings_total counter")
            for (endpoint, outcome), n in sorted(self.outcomes.items()):
                lines.append(f'gemjax_shortenings_total{{endpoint="{endpoint}",outcome="{outcome}"}} {n}')
            lines.append("# TYPE gemjax_failures_total counter")
            lines += [f'gemjax_failures_total{{kind="{kind}"}} {n}' for kind, n in sorted(self.errors.items())]
            lines.append("# TYPE gemjax_shortening_seconds histogram")
            count = 0
            for bound in (*_BOUNDS, float("inf")):
                count += self.seconds[bound]
                name = "+Inf" if bound == float("inf") else f"{bound:g}"
                lines.append(f'gemjax_shortening_seconds_bucket{{le="{name}"}} {count}')
            lines += [f"gemjax_shortening_seconds_sum {self.seconds_sum:g}", f"gemjax_shortening_seconds_count {count}"]
            lines += ["# TYPE gemjax_in_flight gauge", f"gemjax_in_flight {self.in_flight}"]
        sums = {
            "gemjax_chars_before_total": total.chars_before,
            "gemjax_chars_after_total": total.chars_after,
            "gemjax_input_cost_before_total": total.cost_before,
            "gemjax_input_cost_after_total": total.cost_after,
            "gemjax_cache_rewrites_total": total.rewrites,
        }
        for name, value in sums.items():
            lines += [f"# TYPE {name} counter", f"{name} {value:.10g}"]
        lines += ["# TYPE gemjax_conversations gauge", f"gemjax_conversations {len(accounts)}"]
        return "\n".join(lines) + "\n"
