"""Machines as a drawing: steps, branches, flows, timeouts, and who calls whom, as Mermaid or as SVG (`bide graph`)."""

from __future__ import annotations

from collections.abc import Iterator
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
    machine: int  # which of the graph


@dataclass(frozen=True)
class Edge:
    start: str
    end: str
    label: str = ""
    is_dotted: bool = False
    is_call: bool = False  # of the machine that begins with the node it leads to


@dataclass
class Graph:
    machines: list[str]
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def groups(self, machine: int) -> list[str]:
        """The flows of a machine, its main one first."""
        return list(dict.fromkeys(node.group for node in self.nodes if node.machine == machine))


Loose = list[tuple[str, str]]  # ends that wait for what follows: a node and the label of the edge


def graph_of(*machines: Machine) -> Graph:
    """One graph of all of them, with the calls and launches between them."""
    graph = Graph([machine.name for machine in machines])
    drawers = [_Drawer(machine, number, graph) for number, machine in enumerate(machines)]
    for drawer in drawers:
        drawer.draw()
    starts = {drawer.name: drawer.start for drawer in reversed(drawers)}
    for drawer in drawers:
        for node, name, kind in drawer.calls:
            if name in starts:
                said = "calls" if kind == "call" else "launches"
                graph.edges.append(Edge(node, starts[name], said, is_dotted=kind == "launch", is_call=True))
    return graph


class _Drawer:
    """Puts one machine into a graph."""

    def __init__(self, machine: Machine, number: int, graph: Graph) -> None:
        self.name = machine.name
        self.start = ""  # the node that it begins with
        self.calls: list[tuple[str, str, str]] = []  # from node, machine, call or launch
        self._machine = machine
        self._number = number
        self._source: Source = machine.source
        self._graph = graph
        self._firsts: dict[str, str] = {}
        self._mentions: list[tuple[str, str, str]] = []  # from node, to flow, label
        self._group = ""

    def draw(self) -> None:
        self.start = start = self._node(self._machine.name, "end")
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

    def _close(self, loose: Loose) -> None:
        if loose:
            end = self._node("end", "end")
            self._join(loose, end)

    def _node(self, label: str, form: Form) -> str:
        node = Node(f"n{len(self._graph.nodes) + 1}", label, form, self._group, self._number)
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
        if isinstance(step, Call) and isinstance(step.machine, Literal_):
            self.calls.append((node, str(step.machine.value), step.kind))
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
    for number, name in enumerate(graph.machines):
        if len(graph.machines) == 1:
            lines += _flows(graph, number, "    ", "flow")
            continue
        lines.append(f'    subgraph machine_{number + 1} ["machine {_quoted(name)}"]')
        lines += _flows(graph, number, "        ", f"machine_{number + 1}_flow")
        lines.append("    end")
    for edge in graph.edges:
        arrow = ("-.->" if edge.is_dotted else "-->") if not edge.is_call else "-..->" if edge.is_dotted else "==>"
        label = f'|"{_quoted(edge.label)}"|' if edge.label else ""
        lines.append(f"    {edge.start} {arrow}{label} {edge.end}")
    return "\n".join(lines) + "\n"


def _flows(graph: Graph, machine: int, indent: str, prefix: str) -> Iterator[str]:
    for group in graph.groups(machine):
        inner = indent
        if group:
            yield f'{indent}subgraph {prefix}_{_id(group)} ["flow {_quoted(group)}"]'
            inner = f"{indent}    "
        for node in (node for node in graph.nodes if (node.machine, node.group) == (machine, group)):
            left, right = SHAPES[node.form]
            yield f'{inner}{node.id}{left}"{_quoted(node.label)}"{right}'
        if group:
            yield f"{indent}end"


def _id(text: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else f"_{ord(letter):x}" for letter in text)


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
MARGIN: Final = 30
FRAME: Final = 24  # between a machine's frame and its boxes
TITLE: Final = 34
FILL: Final = {"step": "#eef3fb", "wait": "#fdf3dc", "choice": "#eaf6ec", "end": "#f0f0f0"}
CALLING: Final = "#2456a6"
HALO: Final = 'stroke="#fff" stroke-width="4" paint-order="stroke"'

Places = dict[str, tuple[int, int]]


def svg(graph: Graph) -> str:
    """The graph as a picture: machines one below the other, one column per flow, steps from top to bottom."""
    outer = _calling_lanes(graph)
    left = MARGIN + (FRAME + 70 + LANE * max(outer.values()) if outer else 0)
    places, frames = _laid_out(graph, left)
    columns = max(len(graph.groups(number)) for number in range(len(graph.machines)))
    width, height = left + MARGIN + columns * COLUMN, frames[-1][1] + 10
    marker = 'viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<defs><marker id="arrow" {marker}><path d="M0 0L10 5L0 10z" fill="#555"/></marker>'
        f'<marker id="calling" {marker}><path d="M0 0L10 5L0 10z" fill="{CALLING}"/></marker></defs>',
    ]
    for number, (top, bottom) in enumerate(frames):
        groups = graph.groups(number)
        if len(frames) > 1:
            parts.append(_frame(graph.machines[number], left, top, len(groups) * COLUMN, bottom - top))
        for index, group in enumerate(groups):
            if group:
                y = top + 30 + (TITLE if len(frames) > 1 else 0)
                parts.append(
                    f'<text x="{left + index * COLUMN}" y="{y}" font-weight="bold">flow {escape(group)}</text>'
                )
    lanes = _lanes(graph, places)
    for number, edge in enumerate(graph.edges):
        if edge.is_call:
            parts.append(_call_line(edge, places, left, outer[edge.end]))
        else:
            parts.append(_line(edge, places, lanes.get(number, 0)))
    parts += (_box(node, *places[node.id]) for node in graph.nodes)
    parts += (_label(edge, places) for edge in graph.edges if edge.label)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _laid_out(graph: Graph, left: int) -> tuple[Places, list[tuple[int, int]]]:
    """Where each box stands, and from where to where each machine goes."""
    places: Places = {}
    frames: list[tuple[int, int]] = []
    top = MARGIN if len(graph.machines) > 1 else 0
    for number in range(len(graph.machines)):
        groups = graph.groups(number)
        first = top + 50 + (TITLE if len(graph.machines) > 1 else 0)
        rows = dict.fromkeys(groups, 0)
        for node in (node for node in graph.nodes if node.machine == number):
            places[node.id] = (left + groups.index(node.group) * COLUMN, first + rows[node.group] * ROW)
            rows[node.group] += 1
        frames.append((top, first + max(rows.values()) * ROW))
        top = frames[-1][1] + MARGIN
    return places, frames


def _frame(name: str, left: int, top: int, width: int, height: int) -> str:
    size = f'width="{width}" height="{height}" rx="10"'
    return (
        f'<rect x="{left - FRAME}" y="{top}" {size} fill="#fcfcfc" stroke="#bbb"/>'
        f'<text x="{left}" y="{top + 26}" font-size="16" font-weight="bold">machine {escape(name)}</text>'
    )


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


def _is_beside(edge: Edge, places: Places) -> bool:
    """Whether an arrow leaves its column's middle and goes down, or up, beside the boxes."""
    (x1, y1), (x2, y2) = places[edge.start], places[edge.end]
    return not edge.is_call and x1 == x2 and y2 - y1 != ROW


def _lanes(graph: Graph, places: Places) -> dict[int, int]:
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


def _calling_lanes(graph: Graph) -> dict[str, int]:
    """For each machine that is called, by its first node, how far left of all boxes the arrows to it come down."""
    called = dict.fromkeys(edge.end for edge in graph.edges if edge.is_call)
    return {node: lane for lane, node in enumerate(called)}


def _height(edge: Edge, places: Places) -> int:
    return places[edge.end][1] - places[edge.start][1]


def _path(path: str, edge: Edge) -> str:
    dash = ' stroke-dasharray="5 4"' if edge.is_dotted else ""
    color, marker = (CALLING, "calling") if edge.is_call else ("#555", "arrow")
    return f'<path d="{path}" fill="none" stroke="{color}"{dash} marker-end="url(#{marker})"/>'


def _line(edge: Edge, places: Places, lane: int) -> str:
    (x1, y1), (x2, y2) = places[edge.start], places[edge.end]
    if x1 != x2:
        gutter = x2 - 24 if x2 > x1 else x2 + WIDTH + 24
        start, end = (x1 + WIDTH, x2) if x2 > x1 else (x1, x2 + WIDTH)
        path = f"M{start} {y1 + HEIGHT // 2}H{gutter}V{y2 + HEIGHT // 2}H{end}"
    elif _is_beside(edge, places):
        side = x1 + WIDTH
        path = f"M{side} {y1 + HEIGHT // 2 + 10}H{side + 18 + LANE * lane}V{y2 + HEIGHT // 2 - 10}H{side}"
    else:
        path = f"M{x1 + WIDTH // 2} {y1 + HEIGHT}V{y2}"
    return _path(path, edge)


def _call_line(edge: Edge, places: Places, left: int, lane: int) -> str:
    """An arrow to another machine: out of the box to the left, between the rows past the columns there, and down, or
    up, outside of all frames."""
    (x1, y1), (x2, y2) = places[edge.start], places[edge.end]
    outside = left - FRAME - 60 - LANE * lane
    way = f"H{x1 - 12}V{y1 + HEIGHT + 26}" if x1 != left else ""
    return _path(f"M{x1} {y1 + HEIGHT // 2 + 12}{way}H{outside}V{y2 + HEIGHT // 2}H{x2}", edge)


def _label(edge: Edge, places: Places) -> str:
    """What is said of an arrow: where it ends beside the boxes, since many may begin at one; else where it begins."""
    (x1, y1), (x2, y2) = places[edge.start], places[edge.end]
    anchor, color = "", "#555"
    if edge.is_call:
        is_inside = any(x < x1 for x, _ in places.values())  # then it leaves below, between the rows
        x, y = x1 - 16, y1 + (HEIGHT + 21 if is_inside else HEIGHT // 2 + 7)
        anchor, color = ' text-anchor="end"', CALLING
    elif x1 != x2:
        x, y = x1 + WIDTH + 80, y1 + HEIGHT // 2 + 14
    elif _is_beside(edge, places):
        x, y = x1 + WIDTH + 12, y2 + HEIGHT // 2 - 15
    else:
        x, y = x1 + WIDTH // 2 + 6, y1 + HEIGHT + 24
    return f'<text x="{x}" y="{y}" font-size="11" fill="{color}"{anchor} {HALO}>{escape(_short(edge.label))}</text>'
