"""report.html: one file that needs no network and can be sent to anyone. Every number in it is also in --json."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from stress.charts import charts
from stress.findings import Finding
from stress.session import Result

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a202c; background: #fff; margin: 2rem auto; max-width: 64rem;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
.verdict { border-left: .4rem solid; padding: .6rem 1rem; background: #f7fafc; }
.ok { border-color: #2f855a; } .bad { border-color: #c53030; background: #fff5f5; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1.2rem .15rem 0; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f7fafc; padding: .8rem; overflow-x: auto; font-size: 12px; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
@media (max-width: 50rem) { .pair { display: block; } }
p.note { color: #4a5568; }
"""


def report(result: Result) -> str:
    pictures = charts(result)
    title = f"{result.backend}: {result.word}"
    return "\n".join([
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        *_verdicts(result),
        *_findings(result.findings),
        "<h2>What happened</h2>", *_facts(result),
        "<h2>Throughput over time</h2>", pictures["Throughput"],
        '<p class="note">Shaded: the whole database was struck (lock, full disk, lost connections, restart).</p>',
        "<h2>Latency</h2>", pictures["Latency"], *_latencies(result),
        "<h2>Processes</h2>", pictures["Processes"],
        '<p class="note">Blue: alive. Orange: stopped (SIGSTOP). Red cross: killed (SIGKILL).</p>',
        '<h2>Attempts and backoff</h2><div class="pair"><div>', pictures["Attempts"],
        "</div><div>", pictures["Backoff"], "</div></div>",
        '<p class="note">Each point is one retry; the band is what G-11 allows. On PostgreSQL the failure is known '
        "only to within its call, so points may lie above the band.</p>",
        "</body></html>", "",
    ])  # fmt: skip


def _verdicts(result: Result) -> Iterable[str]:
    a, b = result.a, result.b
    yield (f'<p class="verdict {_class(a.ok)}"><b>(a) What the clients were told</b> is '
           f"{'linearizable' if a.ok else '<b>not</b> what the model allows'}: {a.shared.calls:,} calls "
           f"({a.shared.open_calls:,} without an answer), {a.judged.ops:,} operations on {a.judged.jobs:,} jobs, "
           f"{a.judged.undecided:,} undecided; order judged for {a.ordered.judged:,} of {a.ordered.dequeues:,} "
           "dequeues.</p>")  # fmt: skip
    broke = f" {escape(b.broke[:300])}" if b.broke else ""
    yield (f'<p class="verdict {_class(b.ok)}"><b>(b) What the table went through</b> is '
           f"{'a behaviour' if b.ok else '<b>no</b> behaviour'} of the TLA+ specification: TLC replayed {b.events:,} "
           f"events of {b.touched_replayed + b.sampled:,} jobs: {b.touched_replayed:,} of the {b.touched:,} that a "
           f"kill, a pause or a cancel touched, and {b.sampled:,} others.{broke}</p>")  # fmt: skip


def _class(ok: bool) -> str:
    return "ok" if ok else "bad"


def _findings(findings: list[Finding]) -> Iterable[str]:
    if findings:
        yield "<h2>Violations</h2>"
    for finding in findings[:20]:
        yield f"<pre>({finding.verdict}) {escape(str(finding))}</pre>"


def _facts(result: Result) -> Iterable[str]:
    options = result.options
    facts = {
        "seed": options.seed,
        "processes": f"{options.producers} producers, {options.workers} workers, {options.bare} bare clients, "
                     "a sweeper, a canceller, a cleaner",
        "lease, heartbeat": f"{options.lease:g} s, {options.heartbeat:g} s",
        "ran, judged": f"{result.seconds:.0f} s, {result.judging:.0f} s",
        "strikes": ", ".join(f"{number} {kind}" for kind, number in sorted(result.strikes.items())) or "none",
        "full disk": result.disk,
        "account": ", ".join(f"{number:,} {name}" for name, number in result.a.accounting.items()),
    }  # fmt: skip
    yield "<table>"
    for name, value in facts.items():
        yield f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
    yield "</table>"


def _latencies(result: Result) -> Iterable[str]:
    found = result.a.shared.measures.percentiles()
    columns = next((list(values) for values in found.values()), [])
    yield "<table><tr><th>ms</th>" + "".join(f"<th>{escape(name)}</th>" for name in columns) + "</tr>"
    for name, values in found.items():
        cells = "".join(f'<td class="n">{values[column]:,.{0 if column == "count" else 1}f}</td>' for column in columns)
        yield f"<tr><td>{escape(name)}</td>{cells}</tr>"
    yield "</table>"
