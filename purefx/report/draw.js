"use strict";
// Draws a graph, or as much of a long one as can be laid out at once, into an SVG; pan and zoom.  Names become text nodes only.

const SVG = "http://www.w3.org/2000/svg";
const MOST_DRAWN = 120;
const OUTPUT = "\u0000return";

function make(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const cut = (text, length) => (text.length > length ? text.slice(0, length - 1) + "\u2026" : text);
const plainOp = (op) => op.replace(/^aten\./, "").replace(/\.default$/, "");

// Where things stand: nodes with x, y, width, height, and the points of edges.
function layOut(graph, start, end) {
  const drawn = graph.all.slice(start, end), has = new Set(drawn.map((node) => node.name));
  const laid = new dagre.graphlib.Graph();
  laid.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 26, marginx: 12, marginy: 12, ranker: "longest-path" });
  laid.setDefaultEdgeLabel(() => ({}));
  // Names are keys of plain objects in the library: numbers are none that any object has.
  const keys = new Map(drawn.map((node, number) => [node.name, "n" + number]));
  for (const node of drawn) {
    const lines = [cut(node.name, 30), cut(plainOp(node.op), 34), cut(node.value || "", 36)];
    laid.setNode(keys.get(node.name), { node, lines, width: Math.max(60, 16 + 6.7 * lines[0].length, 16 + 5.9 * lines[1].length, 16 + 5.9 * lines[2].length), height: lines[2] ? 46 : 34 });
  }
  if (end >= graph.all.length && graph.output) {
    laid.setNode("out", { node: { name: OUTPUT, kind: "output" }, lines: ["return", "", ""], width: 60, height: 24 });
    for (const name of graph.refs) if (has.has(name)) laid.setEdge(keys.get(name), "out", { name });
  }
  for (const node of drawn) for (const name of node.refs) if (has.has(name) && name !== node.name) laid.setEdge(keys.get(name), keys.get(node.name), { name });
  dagre.layout(laid);
  return laid;
}

class Pane {
  constructor(title, chosen) {
    this.title = title;
    this.chosen = chosen;
    this.head = make("div", { class: "pane-head" });
    this.svg = shape("svg", { role: "img" });
    this.element = make("div", { class: "pane" }, this.head, this.svg);
    this.scale = 1; this.x = 0; this.y = 0;
    this.listen();
  }

  show(version, graph, options) {
    this.version = version; this.graph = graph; this.options = options;
    const length = graph.all.length, focus = options.focus ? graph.place.get(options.focus) : undefined;
    if (focus !== undefined && !(focus >= this.start && focus < this.end && this.drawn === graph)) this.start = Math.max(0, Math.min(focus - MOST_DRAWN / 2, length - MOST_DRAWN));
    else if (this.drawn !== graph) this.start = 0;
    this.draw();
    if (options.focus) this.mark(options.focus, true);
  }

  draw() {
    this.end = Math.min(this.graph.all.length, this.start + MOST_DRAWN);
    this.drawn = this.graph;
    this.titles();
    this.laid = layOut(this.graph, this.start, this.end);
    this.layer = shape("g", {});
    this.boxes = new Map(); this.edges = [];
    for (const edge of this.laid.edges()) this.edge(edge);
    for (const key of this.laid.nodes()) this.box(this.laid.node(key));
    this.svg.replaceChildren(this.layer);
    this.fit();
  }

  titles() {
    const length = this.graph.all.length, page = (by) => () => { this.start = Math.max(0, Math.min(this.start + by, length - MOST_DRAWN)); this.draw(); };
    this.head.replaceChildren(make("span", { class: "dim" }, this.title), make("b", {}, this.graph.name || "the root"), make("span", { class: "grow" }),
      ...(length > MOST_DRAWN ? [make("button", { type: "button", onclick: page(-MOST_DRAWN), title: "earlier nodes" }, "\u25c0"), make("span", { class: "dim" }, `${this.start + 1}\u2013${this.end} of ${length}`), make("button", { type: "button", onclick: page(MOST_DRAWN), title: "later nodes" }, "\u25b6")] : [make("span", { class: "dim" }, length + " nodes")]),
      make("button", { type: "button", onclick: () => this.fit(), title: "fit (0)" }, "fit"));
  }

  box({ node, lines, x, y, width, height }) {
    const mark = this.options.marks && this.options.marks.get(keyOf(this.graph.name, node.name));
    const classes = ["node", node.kind, mark && mark !== "same" ? mark : "", this.options.wrong.has(keyOf(this.graph.name, node.name)) ? "wrong" : ""].join(" ").trim();
    const made = shape("g", { class: classes, transform: `translate(${x - width / 2} ${y - height / 2})` }, shape("rect", { width, height, rx: 6 }));
    const write = (text, at, small) => { if (text) { const line = shape("text", { x: 8, y: at, class: small ? "small" : "" }); line.textContent = text; made.append(line); } };
    write(lines[0], node.kind === "output" ? 16 : 14, false); write(lines[1], 27, true); write(lines[2], 40, true);
    if (node.kind !== "output") {
      made.setAttribute("tabindex", "0");
      const open = () => this.chosen(this, node);
      made.addEventListener("click", () => { if (!this.dragged) open(); });
      made.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
    }
    this.boxes.set(node.name, made);
    this.layer.append(made);
  }

  edge(edge) {
    const { points, name } = this.laid.edge(edge), last = points[points.length - 1];
    const made = shape("path", { class: "edge", d: "M" + points.map((point) => `${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join("L") });
    const to = this.laid.node(edge.w).node.name;
    this.edges.push({ made, from: name, to });
    this.layer.append(made, shape("path", { class: "arrow", d: `M${last.x} ${last.y}l-3 -6h6z` }));
  }

  mark(name, center) {
    for (const [one, made] of this.boxes) made.classList.toggle("chosen", one === name);
    for (const { made, from, to } of this.edges) made.classList.toggle("lit", from === name || to === name);
    const place = center && [...this.laid.nodes()].map((key) => this.laid.node(key)).find((one) => one.node.name === name);
    if (place) this.center(place);
  }

  size() { const box = this.svg.getBoundingClientRect(); return [box.width || 800, box.height || 600]; }

  center({ x, y }) {
    const [width, height] = this.size();
    this.scale = Math.max(this.scale, 0.8);
    this.x = width / 2 - x * this.scale; this.y = height / 2 - y * this.scale;
    this.move();
  }

  fit() {
    const [width, height] = this.size(), all = this.laid.graph();
    const whole = Math.min(width / (all.width || 1), height / (all.height || 1), 1.2);
    this.scale = Math.max(whole, 0.55);  // what is larger begins at its top
    this.x = (width - (all.width || 0) * this.scale) / 2; this.y = whole < 0.55 ? 0 : Math.max(0, (height - (all.height || 0) * this.scale) / 2);
    const first = this.laid.nodes().map((key) => this.laid.node(key)).sort((a, b) => a.y - b.y)[0];
    if (whole < 0.55 && first) this.x = width / 2 - first.x * this.scale;
    this.move();
  }

  move() { this.layer.setAttribute("transform", `translate(${this.x.toFixed(1)} ${this.y.toFixed(1)}) scale(${this.scale.toFixed(3)})`); }

  zoom(by, at) {
    const scale = Math.min(4, Math.max(0.05, this.scale * by));
    this.x = at.x - ((at.x - this.x) * scale) / this.scale; this.y = at.y - ((at.y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.move();
  }

  listen() {
    let held = null;
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = this.svg.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY / 400), { x: event.clientX - box.left, y: event.clientY - box.top });
    }, { passive: false });
    this.svg.addEventListener("pointerdown", (event) => { held = { x: event.clientX - this.x, y: event.clientY - this.y, from: [event.clientX, event.clientY] }; this.dragged = false; });
    window.addEventListener("pointermove", (event) => {
      if (!held || !event.buttons) return;
      if (Math.hypot(event.clientX - held.from[0], event.clientY - held.from[1]) > 4) this.dragged = true;
      if (this.dragged) { this.x = event.clientX - held.x; this.y = event.clientY - held.y; this.move(); }
    });
    window.addEventListener("pointerup", () => { held = null; });
  }
}
