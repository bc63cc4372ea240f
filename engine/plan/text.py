"""A plan as text that people read: indented for ``explain()``, Mermaid for ``graph()``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.plan.durations import spoken
from penstock.plan.node import Node, step_name, walk


@dataclass(frozen=True)
class Drawn:
    """An output as the plan's text shows it."""

    name: str
    target: str
    node: Node


def explain(job: str, outputs: Sequence[Drawn], dead_letters: str | None) -> str:
    """Each output with the steps that lead to it, the newest first."""
    lines = [f"job '{job}'"]
    shown: set[Node] = set()
    for output in outputs:
        lines.append(f"output '{output.name}' to {output.target}")
        _explain(output.node, 1, lines, shown)
    lines.append(f"dead letters to {dead_letters}" if dead_letters else "dead letters: none, a bad row stops the job")
    return "\n".join(lines) + "\n"


def _explain(node: Node, depth: int, lines: list[str], shown: set[Node]) -> None:
    indent = "  " * depth
    label = f" (named '{node.label}')" if node.label else ""
    lines.append(f"{indent}{node.describe()}{label}")
    if node.stateful and node in shown:
        lines.append(f"{indent}  ... as above")
        return
    shown.add(node)
    if keeps := node.keeps():
        lines.append(f"{indent}| keeps {keeps}; lag {spoken(node.lag)}")
    for upstream in node.inputs:
        _explain(upstream, depth + 1, lines, shown)


def graph(outputs: Sequence[Drawn]) -> str:
    """The plan as a Mermaid flow chart."""
    nodes = list(walk(*(o.node for o in outputs)))
    ids = {node: f"n{i}" for i, node in enumerate(nodes)}
    lines = ["flowchart LR"]
    for node in nodes:
        left, right = ('[("', '")]') if node.stateful else ('["', '"]') if node.inputs else ('(["', '"])')
        keeps = node.keeps()
        state = f"<br/>keeps {_mermaid(keeps)}; lag {spoken(node.lag)}" if keeps else ""
        lines.append(f"  {ids[node]}{left}{_mermaid(node.describe())}{state}{right}")
        lines += [f"  {ids[upstream]} --> {ids[node]}" for upstream in node.inputs]
    for i, output in enumerate(outputs):
        lines.append(f'  out{i}[/"{_mermaid(output.name)}"/]')
        lines.append(f"  {ids[output.node]} --> out{i}")
    return "\n".join(lines) + "\n"


def _mermaid(text: str) -> str:
    return text.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def where_written(node: Node) -> str:
    """The step and the user's line, for a message."""
    name = step_name(node)
    return f"{node.describe() if name is None else repr(name)} ({node.written_at})"
