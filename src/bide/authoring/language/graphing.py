"""A machine as a drawing: its steps, branches, flows and timeouts, as Mermaid or as SVG (`bide graph`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal
from xml.sax.saxutils import escape

from bide.authoring.language.source import Source
from bide.authoring.language.tree import (
    AskModel,
    Call,
    Compute,
    Decide,
    Emit,
    Expression,
    ForEach,
    Http,
    Literal_,
    Machine,
    RunFlow,
    Sequence,
    Step,
    WaitFor,
)

Form = Literal["step", "wait", "choice", "end"]


@dataclass(frozen=True)
class Node:
    id: str
    label: str
    form: Form
    group: str  # the flow it belongs to; "" for the main flow


@dataclass(frozen=True)
class Edge:
    start: str
    end: str
    label: str = ""
    is_dotted: bool = False


@dataclass
class Graph:
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


Loose = list[tuple[str, str]]  # ends that wait for what follows: a node and the label of the edge


def graph_of(machine: Machine) -> Graph:
    return _Drawer(machine).draw()


class _Drawer:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._source: Source = machine.source
        self._graph = Graph()
        self._firsts: dict[str, str] = {}
        self._mentions: list[tuple[str, str, str]] = []  # from node, to flow, label
        self._group = ""

    def draw(self) -> Graph:
        start = self._node(self._machine.name, "end")
        loose = self._sequence(self._machine.main, [(start, "")])
        self._close(loose)
        for flow in self._machine.flows.values():
            self._group = flow.name
            before = len(self._graph.nodes)
            self._close(self._sequence(flow.body, []))
            if len(self._graph.nodes) > before:
                self._firsts[flow.name] = self._graph.nodes[before].id
        for node, flow_name, label in self._mentions:
            if flow_name in self._firsts:
                self._graph.edges.append(Edge(node, self._firsts[flow_name], label, is_dotted=True))
        return self._graph

    def _close(self, loose: Loose) -> None:
        if loose:
            end = self._node("end", "end")
            self._join(loose, end)

    def _node(self, label: str, form: Form) -> str:
        node = Node(f"n{len(self._graph.nodes) + 1}", label, form, self._group)
        self._graph.nodes.append(node)
        return node.id

    def _join(self, loose: Loose, node: str) -> None:
        self._graph.edges += (Edge(start, node, label) for start, label in loose)

    def _sequence(self, sequence: Sequence, loose: Loose) -> Loose:
        for step in sequence.steps:
            loose = self._step(step, loose)
        if sequence.on_failure is not None:
            handler = self._node("on failure", "choice")
            for step_loose in loose[:1]:
                self._graph.edges.append(Edge(step_loose[0], handler, "failure", is_dotted=True))
            loose = [*loose, *self._sequence(sequence.on_failure, [(handler, "")])]
        return loose

    def _step(self, step: Step, loose: Loose) -> Loose:
        node = self._node(self._label(step), _form(step))
        self._join(loose, node)
        match step:
            case Decide():
                return self._decide(step, node)
            case ForEach():
                self._join(self._sequence(step.body, [(node, "each")]), node)
                return [(node, "done")]
            case RunFlow():
                self._mentions.append((node, step.flow.name, "runs"))
            case WaitFor() if step.on_timeout is not None:
                self._mentions.append((node, step.on_timeout.name, self._timeout(step)))
            case Http() | Call() | AskModel() if step.on_failure is not None:
                return [(node, ""), *self._sequence(step.on_failure, [(node, "failure")])]
            case _:
                pass
        return [(node, "")]

    def _decide(self, step: Decide, node: str) -> Loose:
        loose: Loose = []
        for branch in step.branches:
            label = "otherwise" if branch.condition is None else self._text(branch.condition)
            loose += self._sequence(branch.body, [(node, label)])
        if not any(branch.condition is None for branch in step.branches):
            loose.append((node, "otherwise"))
        return loose

    def _text(self, expression: Expression) -> str:
        text = " ".join(self._source.text[expression.span.start : expression.span.end].split())
        return text if len(text) <= 40 else f"{text[:39]}…"

    def _timeout(self, step: WaitFor) -> str:
        timeout = step.entry("timeout")
        return f"after {timeout.value}" if isinstance(timeout, Literal_) else "timeout"

    def _label(self, step: Step) -> str:
        match step:
            case Compute():
                return f"compute {step.name}"
            case Http():
                url = next((entry.value for entry in step.told if entry.name == "url"), None)
                return f"http {step.name}" + (f"\n{self._text(url)}" if url is not None else "")
            case Call():
                return f"{step.kind} {step.name}\n{self._text(step.machine)}"
            case AskModel():
                return f"ask {step.name}\n{self._text(step.using)}"
            case Decide():
                return f"decide {step.name}"
            case Emit():
                return f"emit {self._text(step.event)}"
            case WaitFor():
                event = step.entry("event")
                what = self._text(event) if event is not None else "callback" if step.is_callback else "a person"
                return f"wait for {step.name}\n{what}"
            case RunFlow():
                return f"run flow {step.flow.name}"
            case ForEach():
                return f"for each {step.name}\nin {self._text(step.items)}"


def _form(step: Step) -> Form:
    match step:
        case WaitFor():
            return "wait"
        case Decide() | ForEach():
            return "choice"
        case _:
            return "step"


# ---------------------------------------------------------------- Mermaid

SHAPES: Final = {"step": ("[", "]"), "wait": ("([", "])"), "choice": ("{", "}"), "end": ("((", "))")}


def mermaid(graph: Graph) -> str:
    """The graph for Mermaid, which many tools draw."""
    lines = ["flowchart TD"]
    for group in dict.fromkeys(node.group for node in graph.nodes):
        indent = "    "
        if group:
            lines.append(f'    subgraph {_id(group)} ["flow {_quoted(group)}"]')
            indent = "        "
        for node in (node for node in graph.nodes if node.group == group):
            left, right = SHAPES[node.form]
            lines.append(f'{indent}{node.id}{left}"{_quoted(node.label)}"{right}')
        if group:
            lines.append("    end")
    for edge in graph.edges:
        arrow = "-.->" if edge.is_dotted else "-->"
        label = f'|"{_quoted(edge.label)}"|' if edge.label else ""
        lines.append(f"    {edge.start} {arrow}{label} {edge.end}")
    return "\n".join(lines) + "\n"


def _id(text: str) -> str:
    return "flow_" + "".join(
        letter if letter.isascii() and letter.isalnum() else f"_{ord(letter):x}" for letter in text
    )


def _quoted(text: str) -> str:
    for raw, entity in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;"), ("\n", "<br/>")):
        text = text.replace(raw, entity)
    return text


# ---------------------------------------------------------------- SVG

WIDTH: Final = 240
HEIGHT: Final = 52
ROW: Final = 92
COLUMN: Final = 430  # what is between two columns is for arrows and what is said of them
LANE: Final = 14  # between two arrows that go down side by side
FILL: Final = {"step": "#eef3fb", "wait": "#fdf3dc", "choice": "#eaf6ec", "end": "#f0f0f0"}


def svg(graph: Graph) -> str:
    """The graph as a picture of its own: one column per flow, steps from top to bottom."""
    groups = list(dict.fromkeys(node.group for node in graph.nodes))
    places: dict[str, tuple[int, int]] = {}
    rows = dict.fromkeys(groups, 0)
    for node in graph.nodes:
        places[node.id] = (30 + groups.index(node.group) * COLUMN, 50 + rows[node.group] * ROW)
        rows[node.group] += 1
    width, height = 60 + len(groups) * COLUMN, 60 + max(rows.values(), default=0) * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#555"/></marker></defs>',
    ]
    for index, group in enumerate(groups):
        if group:
            parts.append(f'<text x="{30 + index * COLUMN}" y="30" font-weight="bold">flow {escape(group)}</text>')
    lanes = _lanes(graph, places)
    parts += (_line(edge, places, lanes.get(number, 0)) for number, edge in enumerate(graph.edges))
    parts += (_box(node, *places[node.id]) for node in graph.nodes)
    parts += (_label(edge, places) for edge in graph.edges if edge.label)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _box(node: Node, x: int, y: int) -> str:
    radius = {"step": 4, "wait": 24, "choice": 12, "end": 26}[node.form]
    lines = node.label.split("\n")
    top = y + HEIGHT // 2 + 4 - 8 * (len(lines) - 1)
    spans = "".join(
        f'<text x="{x + WIDTH // 2}" y="{top + 16 * at}" text-anchor="middle">{escape(_short(line))}</text>'
        for at, line in enumerate(lines)
    )
    size = f'width="{WIDTH}" height="{HEIGHT}" rx="{radius}"'
    box = f'<rect x="{x}" y="{y}" {size} fill="{FILL[node.form]}" stroke="#555"/>'
    return f"<g>{box}{spans}</g>"


def _short(text: str) -> str:
    return text if len(text) <= 34 else f"{text[:33]}…"


def _is_beside(edge: Edge, places: dict[str, tuple[int, int]]) -> bool:
    """Whether an arrow leaves its column's middle and goes down, or up, beside the boxes."""
    (x1, y1), (x2, y2) = places[edge.start], places[edge.end]
    return x1 == x2 and y2 - y1 != ROW


def _lanes(graph: Graph, places: dict[str, tuple[int, int]]) -> dict[int, int]:
    """For each arrow beside the boxes how far out it goes, so that none lies on another; the short ones inside."""
    found: dict[int, int] = {}
    taken: list[tuple[int, int, int, int]] = []  # column, lane, from, to
    beside = [number for number, edge in enumerate(graph.edges) if _is_beside(edge, places)]
    for number in sorted(beside, key=lambda number: abs(_height(graph.edges[number], places))):
        edge = graph.edges[number]
        x, (top, end) = places[edge.start][0], sorted((places[edge.start][1], places[edge.end][1]))
        lane = 0
        while any(x == c and lane == at and top < to and start < end for c, at, start, to in taken):
            lane += 1
        taken.append((x, lane, top, end))
        found[number] = lane
    return found


def _height(edge: Edge, places: dict[str, tuple[int, int]]) -> int:
    return places[edge.end][1] - places[edge.start][1]


def _line(edge: Edge, places: dict[str, tuple[int, int]], lane: int) -> str:
    (x1, y1), (x2, y2) = places[edge.start], places[edge.end]
    dash = ' stroke-dasharray="5 4"' if edge.is_dotted else ""
    if x1 != x2:
        gutter = x2 - 24 if x2 > x1 else x2 + WIDTH + 24
        start, end = (x1 + WIDTH, x2) if x2 > x1 else (x1, x2 + WIDTH)
        path = f"M{start} {y1 + HEIGHT // 2}H{gutter}V{y2 + HEIGHT // 2}H{end}"
    elif _is_beside(edge, places):
        side = x1 + WIDTH
        path = f"M{side} {y1 + HEIGHT // 2 + 10}H{side + 18 + LANE * lane}V{y2 + HEIGHT // 2 - 10}H{side}"
    else:
        path = f"M{x1 + WIDTH // 2} {y1 + HEIGHT}V{y2}"
    return f'<path d="{path}" fill="none" stroke="#555"{dash} marker-end="url(#arrow)"/>'


def _label(edge: Edge, places: dict[str, tuple[int, int]]) -> str:
    """What is said of an arrow: where it ends beside the boxes, since many may begin at one; else where it begins."""
    (x1, y1), (x2, y2) = places[edge.start], places[edge.end]
    if x1 != x2:
        x, y = x1 + WIDTH + 80, y1 + HEIGHT // 2 - 5
    elif _is_beside(edge, places):
        x, y = x1 + WIDTH + 12, y2 + HEIGHT // 2 - 15
    else:
        x, y = x1 + WIDTH // 2 + 6, y1 + HEIGHT + 24
    halo = 'stroke="#fff" stroke-width="4" paint-order="stroke"'
    return f'<text x="{x}" y="{y}" font-size="11" fill="#555" {halo}>{escape(_short(edge.label))}</text>'
