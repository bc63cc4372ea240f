"""The results as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from html import escape

from faults.case import Result

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1f24; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 0; }
section { border-left: 4px solid #2da44e; padding: .4rem 1rem; margin: 1rem 0; background: #f6f8fa; }
section.failed { border-color: #cf222e; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
td, th { text-align: left; vertical-align: top; padding: .15rem .8rem .15rem 0; }
td:first-child { white-space: nowrap; color: #57606a; } td { overflow-wrap: anywhere; }
p { margin: .3rem 0; } .failure { color: #cf222e; white-space: pre-wrap; } nav a { margin-right: .5rem; }
a { color: #2da44e; } a.failed { color: #cf222e; font-weight: bold; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; } section { background: #161b22; } td:first-child { color: #8b949e; }
}
"""


def page(results: Sequence[Result], seed: int) -> str:
    """One self-contained page: each case with what was done, what was seen, and whether it passed."""
    failed = sum(not r.passed for r in results)
    told = f"{len(results) - failed} of {len(results)} cases passed"
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    seconds = sum(r.seconds for r in results)
    links = "".join(f'<a class="{_kind(r)}" href="#case-{r.case.number}">{r.case.number}</a>' for r in results)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Faults: {told}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
        f"<h1>Faults: {told}</h1><p>Seed {seed}, {when}, {seconds / 60:.0f} minutes. "
        f"Do one again with <code>python -m faults --seed {seed} --only N</code>.</p><nav>{links}</nav>"
        + "".join(map(_section, results))
        + "</body></html>\n"
    )


def _kind(result: Result) -> str:
    return "passed" if result.passed else "failed"


def _section(result: Result) -> str:
    case = result.case
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in result.evidence)
    failure = f'<p class="failure">{escape(result.failure or "")}</p>' if not result.passed else ""
    return (
        f'<section class="{_kind(result)}" id="case-{case.number}"><h2>{case.number}. {escape(case.fault)}</h2>'
        f"<p>{escape(case.done)}</p><p>Passes when: {escape(case.passes)}. "
        f"<b>{_kind(result)}</b> in {result.seconds:.0f} s.</p>{failure}<table>{rows}</table></section>"
    )
