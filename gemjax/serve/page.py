"""The page at `/`: what the proxy did, for a person. Everything that came from a request is escaped."""

from html import escape

from gemjax.serve.config import ServeConfig
from gemjax.serve.ledger import Account, Ledger

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3em .7em;border-bottom:1px solid #ddd}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.warn{background:#fff3cd;padding:.5em 1em}
summary{cursor:pointer}small{color:#666}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}td,th{border-color:#444}.warn{background:#4a3c00}}"""


def page(config: ServeConfig, ledger: Ledger) -> str:
    """The whole page as HTML."""
    total, accounts = ledger.snapshot()
    would = "would have saved" if config.dry_run else "saved"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>gemjax serve</title>',
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">',
        f"<style>{_STYLE}</style></head><body><h1>gemjax serve</h1>",
    ]
    if config.dry_run:
        parts.append('<p class="warn">Dry run: every request goes out as it came. The figures say what would be.</p>')
    parts.append(
        f"<p><b>{total.requests:,}</b> requests in <b>{len(accounts):,}</b> conversations. Shortening {would} "
        f"<b>{_saved(total.chars_before, total.chars_after)}</b> of the characters and "
        f"<b>{_saved(total.cost_before, total.cost_after)}</b> of the input cost "
        f"({total.cost_before - total.cost_after:,.0f} characters at the plain input price).</p>"
        "<p><small>Costs are estimated from characters: a cached one costs "
        f"{ledger.read:g}, a newly cached one {ledger.write:g} input prices; a cache lives five minutes.</small></p>"
    )
    parts += _warnings(total)
    parts.append(
        '<h2>Conversations</h2><table><tr><th>conversation<th>API<th class="n">requests<th class="n">characters'
        '<th class="n">fewer<th class="n">cheaper<th class="n">rewrites<th>last request</tr>'
    )
    parts += [_row(account) for account in accounts]
    parts.append("</table><p><small>Counters for machines: <a href='/metrics'>/metrics</a></small></p></body></html>")
    return "".join(parts)


def _row(account: Account) -> str:
    cells = (
        f"<tr><td><code>{escape(account.name)}</code><td>{escape(account.api)}"
        f'<td class="n">{account.requests:,}<td class="n">{account.chars_before:,}'
        f'<td class="n">{_saved(account.chars_before, account.chars_after)}'
        f'<td class="n">{_saved(account.cost_before, account.cost_after)}<td class="n">{account.rewrites:,}'
        f"<td>{escape(account.status)}: {escape(account.reason)}</tr>"
    )
    if not account.left_out:
        return cells
    lines = "".join(
        f'<tr><td>{escape(label)}<td class="n">{chars:,}<td>{escape(why)}</tr>'
        for label, chars, why in account.left_out
    )
    table = f'<table><tr><th>what<th class="n">characters<th>why</tr>{lines}</table>'
    count = len(account.left_out)
    return f'{cells}<tr><td colspan="8"><details><summary>{count} blocks left out</summary>{table}</details></tr>'


def _warnings(total: Account) -> list[str]:
    if not total.warnings:
        return []
    lines = "".join(f"<li>{escape(reason)} ({count:,} times)</li>" for reason, count in total.warnings.items())
    return [f'<h2>Warnings</h2><div class="warn">These requests went out as they came:<ul>{lines}</ul></div>']


def _saved(before: float, after: float) -> str:
    return f"{1 - after / before:.1%}" if before else "0.0%"
