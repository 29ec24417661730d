"use strict";
// The page: what is chosen, the tree of modules, the time line, search, details, and the fragment of the address.

const at = (id) => document.getElementById(id);
const state = { right: LAST, left: null, graph: null, node: null };
const count = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const short = (value) => (value === null || value === undefined ? "\u2013" : value < 10000 ? String(value) : count.format(value));
const exact = (value) => (value === null || value === undefined ? "unknown" : value.toLocaleString("en"));
const nameOf = (graph) => graph || "the root";
const panes = { left: new Pane("before", (pane, node) => choose(pane.version, pane.graph.name, node.name)), right: new Pane("after", (pane, node) => choose(pane.version, pane.graph.name, node.name)) };

// -- what is chosen

function choose(version, graph, node) {
  if (version !== state.left || state.left === null) { state.graph = graph; state.node = node || null; if (state.left === null) state.right = version; }
  if (version === state.left && state.left !== state.right) { details(version, graph, node); panes.left.mark(node, false); return; }
  const shown = panes.right;
  if (shown.version === version && shown.graph && shown.graph.name === graph && shown.boxes.has(node) && document.contains(shown.element)) shown.mark(node, false);
  else drawPanes();
  details(version, graph, node);
  address();
  markRow();
}

function open(version, graph, node) {
  state.right = version; state.graph = graph; state.node = node || null;
  if (state.left !== null && state.left >= version) state.left = null;
  show();
  if (node) details(version, graph, node); else drawSummary();
}

function show() {
  const version = versionOf(state.right);
  if (!version.graphs.has(state.graph)) { state.graph = version.graphs.has(version.root) ? version.root : [...version.graphs.keys()][0]; state.node = null; }
  header(version); timeLine(); tree(version); parts(version); drawPanes(); changes(); address();
}

function wrongIn(version) {
  return new Set(version.findings.filter((one) => one.graph !== null && one.node !== null).map((one) => keyOf(one.graph, one.node)));
}

function drawPanes() {
  const version = versionOf(state.right), graph = version.graphs.get(state.graph);
  const is_two = state.left !== null, found = is_two ? compare(state.left, state.right) : null;
  at("panes").replaceChildren(...(is_two ? [panes.left.element] : []), panes.right.element);
  if (!graph) return;
  panes.right.title = is_two ? version.step : "";
  panes.right.show(state.right, graph, { focus: state.node, marks: found && found.right, wrong: wrongIn(version) });
  if (!is_two) return;
  const left = versionOf(state.left), other = left.graphs.get(state.graph) || left.graphs.get(left.root);
  panes.left.title = left.step;
  if (other) panes.left.show(state.left, other, { focus: other.at.has(state.node) ? state.node : null, marks: found.left, wrong: wrongIn(left) });
}

// -- header, time line

function header(version) {
  at("title").textContent = S(DATA.title);
  const [operators, parameters, bytes, flops] = version.totals || [];
  at("totals").textContent = version.totals ? `${exact(operators)} operators, ${exact(parameters)} parameters, ${short(bytes)}B of state, ${short(flops)} FLOPs; ${version.graphs.size} graphs` : `${version.graphs.size} graphs`;
  const found = version.findings, button = at("findings-button");
  button.hidden = !found.length;
  button.textContent = found.length === 1 ? "1 finding" : found.length + " findings";
  button.onclick = () => findings(version);
}

function stepText(index) {
  if (index === 0) return [make("span", {}, exact((versionOf(0).totals || [null])[0]) + " operators")];
  const { counts } = compare(index - 1, index);
  const said = [["added", "+"], ["removed", "\u2212"], ["changed", "~"], ["moved", "\u2192"]].filter(([kind]) => counts[kind]);
  return said.length ? said.map(([kind, sign]) => make("span", { class: kind, title: counts[kind] + " " + kind }, sign + counts[kind] + " ")) : [make("span", {}, "no node differs")];
}

function timeLine() {
  const steps = DATA.versions.map((row, index) => make("button", {
    type: "button", class: "step" + (index === state.right ? " right" : "") + (index === state.left ? " left" : ""), title: S(row.step),
    "data-step": String(index), onclick: () => { if (state.left !== null && index <= state.left) state.left = null; open(index, state.graph, null); },
  }, make("b", {}, (index ? index + " " : "") + S(row.step)), make("span", {}, ...stepText(index))));
  const options = [make("option", { value: "" }, "nothing"), ...DATA.versions.slice(0, state.right).map((row, index) => make("option", { value: String(index) }, (index ? index + " " : "") + S(row.step)))];
  const select = at("compare");
  select.replaceChildren(...options);
  select.value = state.left === null ? "" : String(state.left);
  at("compare-box").hidden = DATA.versions.length < 2;
  at("time").replaceChildren(...steps);
  const chosen = at("time").children[state.right];
  at("time").scrollLeft = Math.max(0, chosen.offsetLeft + chosen.offsetWidth + 40 - at("time").clientWidth - at("time").offsetLeft);
}

// -- the tree: bodies under the bodies that call them, and in flat graphs the module calls around nodes

const folds = new Map();  // what the user has opened and closed, by the labels on the way to it

function tree(version) {
  const seen = new Set();
  at("tree").replaceChildren(branch(version, { label: version.graphs.has(version.root) ? S(DATA.title) : "?", graph: version.root, paths: [""], calls: 1, key: "" }, seen, true));
  markRow();
}

function sizesOf(version, paths) {
  const sum = { operators: 0, parameters: 0, bytes: 0, flops: null, type: null };
  for (const path of paths) {
    const found = version.sizes.get(path);
    if (!found) continue;
    sum.type = sum.type || found.type;
    for (const key of ["operators", "parameters", "bytes"]) sum[key] += found[key];
    if (found.flops !== null) sum.flops = (sum.flops || 0) + found.flops;
  }
  return version.sizes.size ? sum : { operators: null, parameters: null, bytes: null, flops: null, type: null };
}

const MOST_PATHS = 4096;

function childrenOf(version, item) {
  const graph = version.graphs.get(item.graph);
  if (!graph) return [];
  const found = new Map(), above = item.stack ? item.stack.length : 0;
  for (const node of graph.all) {
    if (item.stack && item.stack.some((frame, depth) => node.stack[depth] !== frame)) continue;
    if (node.stack.length > above) {
      const frame = node.stack[above], key = "in " + frame;
      const path = joined(item.base || item.paths[0], frame.replace(/[@#].*$/, ""));
      if (!found.has(key)) found.set(key, { label: frame, graph: item.graph, stack: [...(item.stack || []), frame], base: item.base || item.paths[0], paths: [path], calls: 1, first: node.name });
      continue;
    }
    for (const callee of node.callees) {
      const key = "call " + callee.graph;
      if (!found.has(key)) found.set(key, { label: callee.path || callee.graph, graph: callee.graph, paths: [], calls: 0 });
      const child = found.get(key), outer = item.stack ? [item.base] : item.paths;
      child.calls += 1;
      for (const path of outer) if (child.paths.length < MOST_PATHS) child.paths.push(joined(path, callee.path));
    }
  }
  return [...found.values()];
}

function branch(version, item, seen, is_open) {
  const key = item.stack ? null : item.graph, again = key !== null && seen.has(key);
  if (key !== null) seen.add(key);
  const children = again ? [] : childrenOf(version, item), sizes = sizesOf(version, [...new Set(item.paths)]);
  const times = item.paths.length > 1 ? "\u00d7" + (item.paths.length >= MOST_PATHS ? MOST_PATHS + "+" : item.paths.length) : "";
  const inner = make("div", { class: "inner", hidden: true });
  const fold = make("button", { type: "button", class: "fold" + (children.length ? "" : " leaf"), "aria-label": "fold" }, "\u25b8");
  const type = (sizes.type || "").split(".").pop();
  const label = item.calls > 1 && !item.stack ? item.graph : item.label;
  const place = item.key + "/" + label;
  const row = make("div", { class: "row", title: [item.paths.slice(0, 12).map(nameOf).join("\n"), sizes.type || "", again ? "shown above" : ""].filter(Boolean).join("\n") },
    make("span", { class: "label" }, fold, make("span", { class: "name" }, label), make("span", { class: "times" }, times), make("span", { class: "class" }, (type && type !== label ? type : "") + (again ? " \u2191" : ""))),
    ...["operators", "parameters", "bytes", "flops"].map((what) => make("span", { class: "num", title: exact(sizes[what]) + " " + what }, short(sizes[what]))));
  row.dataset.graph = item.graph;
  if (item.first) row.dataset.first = item.first;
  const turn = (shown) => {
    if (shown && !inner.childNodes.length) inner.append(...children.map((child) => branch(version, { ...child, key: place }, seen, is_open && children.length === 1)));
    inner.hidden = !shown;
    fold.textContent = shown ? "\u25be" : "\u25b8";
    fold.setAttribute("aria-expanded", String(shown));
  };
  fold.addEventListener("click", (event) => { event.stopPropagation(); folds.set(place, inner.hidden); turn(inner.hidden); });
  row.addEventListener("click", () => open(state.right, item.graph, item.first || null));
  turn(folds.has(place) ? folds.get(place) : is_open);
  return make("div", { class: "branch" }, row, inner);
}

function markRow() {
  for (const row of at("tree").querySelectorAll(".row")) row.classList.toggle("chosen", row.dataset.graph === state.graph && !row.dataset.first);
}

function parts(version) {
  at("parts").hidden = !version.parts;
  if (!version.parts) return;
  at("parts-list").replaceChildren(
    make("p", {}, ...version.parts.parts.map((one) => make("button", { type: "button", onclick: () => open(state.right, one.graph, null) }, one.name))),
    ...version.parts.arrows.map((one) => make("p", { class: "arrow-row" }, `${one.from} \u2192 ${one.to}: `,
      make("code", {}, one.values.slice(0, 40).join(", ") + (one.values.length > 40 ? ` and ${one.values.length - 40} more` : "")), make("b", {}, ` ${exact(one.bytes)} bytes`), one.complete ? "" : " and what has no known size")));
}

// -- what differs

const MOST_LISTED = 400;

function changes() {
  at("changes").hidden = state.left === null;
  if (state.left === null) return;
  const found = compare(state.left, state.right), { counts } = found;
  at("changes-title").textContent = Object.entries(counts).map(([kind, number]) => `${number} ${kind}`).join(", ");
  const here = found.list.filter((one) => one.graph === state.graph), rest = found.list.filter((one) => one.graph !== state.graph);
  const shown = [...here, ...rest].slice(0, MOST_LISTED);
  at("changes-list").replaceChildren(...shown.map((one) => make("li", {}, changeRow(one))), ...(found.list.length > shown.length ? [make("li", { class: "dim" }, `and ${found.list.length - shown.length} more`)] : []));
}

function changeRow(one) {
  const signs = { added: "+", removed: "\u2212", changed: "~", moved: "\u2192" };
  const where = one.kind === "removed" ? state.left : state.right;
  return make("button", { type: "button", class: one.kind, onclick: () => {
    if (where === state.right) { state.graph = one.graph; state.node = one.node.name; drawPanes(); markRow(); address(); } else panes.left.show(state.left, versionOf(state.left).graphs.get(one.graph), { ...panes.left.options, focus: one.node.name });
    details(where, one.graph, one.node.name);
  } }, `${signs[one.kind]} ${one.node.name} `, make("code", {}, plainOp(one.node.op)), ` in ${nameOf(one.graph)}`);
}

// -- details

const field = (title, ...content) => (content.length && content[0] !== null ? [make("h4", {}, title), ...content] : []);
const line = (text) => make("p", { class: "mono" }, text);

function link(version, graph, name, text) {
  return make("button", { type: "button", class: "mono", onclick: () => choose(version, graph, name) }, text || name);
}

function details(version, graph, name) {
  const found = versionOf(version), body = found.graphs.get(graph), node = body && body.at.get(name);
  if (!node) { drawSummary(); return; }
  const wrong = found.findings.filter((one) => one.graph === graph && one.node === name);
  const users = body.users.get(name) || [];
  at("details").replaceChildren(make("h3", { class: "mono" }, node.name), ...wrong.map(findingBox),
    ...field("operator", line(node.op)), ...field("line", make("pre", {}, node.line)), ...field("value", node.value === null ? null : line(node.value + (node.bytes === null ? "" : `, ${exact(node.bytes)} bytes`))),
    ...field("effects", line(node.effects || "none")), ...field("module", node.stack.length ? line(node.stack.join(" / ")) : null),
    ...field("your line", node.source === null ? null : line(node.source)),
    ...field("uses", ...(node.refs.length ? node.refs.map((one) => link(version, graph, one)) : [null])), ...field("used by", ...(users.length ? users.slice(0, 40).map((one) => link(version, graph, one)) : [null])),
    ...field("runs", ...(node.callees.length ? node.callees.map((one) => make("button", { type: "button", onclick: () => open(version, one.graph, null) }, nameOf(one.graph))) : [null])), ...markBox(version, graph, name));
}

function markBox(version, graph, name) {
  if (state.left === null) return [];
  const found = compare(state.left, state.right), mark = (version === state.left ? found.left : found.right).get(keyOf(graph, name));
  return mark && mark !== "same" ? [make("h4", {}, "between the two steps"), make("p", { class: mark }, mark)] : [];
}

function findingBox(one) {
  return make("div", { class: "finding" }, make("b", {}, one.rule), make("p", {}, one.message + (one.count > 1 ? ` (at ${one.count} places)` : "")), make("p", {}, make("button", { type: "button", onclick: () => { if (one.graph !== null) open(state.right, one.graph, one.node); } }, one.where)),
    make("pre", {}, one.context.join("\n")), one.source ? line(one.source) : "", one.advice ? make("p", { class: "dim" }, one.advice) : "");
}

function findings(version) {
  at("details").replaceChildren(make("h3", {}, "Findings of verify"), ...version.findings.map(findingBox));
}

function drawSummary() {
  const version = versionOf(state.right), graph = version.graphs.get(state.graph);
  const loose = version.findings.filter((one) => one.node === null && (one.graph === null || one.graph === state.graph));
  at("details").replaceChildren(make("h3", {}, nameOf(state.graph)), ...loose.map(findingBox), ...(graph ? [make("p", {}, `${graph.all.length} inputs and nodes`), make("pre", { class: "mono" }, cut(graph.output || "", 400))] : []),
    make("p", { class: "dim" }, "Click a node for what it is and your line. Drag to move, wheel to zoom, 0 to fit."));
}

// -- search, address, keys

const MOST_FOUND = 60;

function search() {
  const asked = at("search").value.trim().toLowerCase(), list = at("found");
  list.hidden = !asked;
  if (!asked) return;
  const found = [];
  for (const [name, graph] of versionOf(state.right).graphs) for (const node of graph.all) {
    if (found.length >= MOST_FOUND) break;
    if ([node.name, node.op, node.line, node.source].some((text) => text && text.toLowerCase().includes(asked))) found.push({ name, node });
  }
  list.replaceChildren(...found.map(({ name, node }) => make("li", {}, make("button", { type: "button", onclick: () => { list.hidden = true; open(state.right, name, node.name); } }, make("span", { class: "mono" }, node.name), make("span", { class: "dim" }, ` ${plainOp(node.op)} in ${nameOf(name)}`)))), ...(found.length ? [] : [make("li", { class: "dim" }, "nothing")]));
}

function address() {
  const wanted = "#" + encodeURIComponent(state.graph || "") + "/" + encodeURIComponent(state.node || "") + (state.right === LAST ? "" : ";step=" + state.right);
  if (location.hash !== wanted) history.replaceState(null, "", wanted);
}

function fromAddress() {
  const [place, step] = location.hash.slice(1).split(";step="), slash = place.lastIndexOf("/");
  let graph, node;
  try { graph = decodeURIComponent(slash < 0 ? "" : place.slice(0, slash)); node = decodeURIComponent(place.slice(slash + 1)); } catch { return false; }
  const version = step !== undefined && DATA.versions[Number(step)] ? Number(step) : LAST;
  if (!location.hash || !versionOf(version).graphs.has(graph)) return false;
  open(version, graph, versionOf(version).graphs.get(graph).at.has(node) ? node : null);
  return true;
}

at("compare").addEventListener("change", () => { state.left = at("compare").value === "" ? null : Number(at("compare").value); show(); });
at("search").addEventListener("input", search);
at("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") at("found").hidden = true;
  if (event.key === "Enter") { const first = at("found").querySelector("button"); if (first) first.click(); }
});
document.addEventListener("click", (event) => { if (!event.target.closest(".search")) at("found").hidden = true; });
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "0") { panes.right.fit(); if (state.left !== null) panes.left.fit(); }
  if (event.key === "/") { event.preventDefault(); at("search").focus(); }
});
window.addEventListener("hashchange", fromAddress);
state.graph = versionOf(LAST).root;
if (!fromAddress()) { show(); drawSummary(); }
document.body.dataset.ready = "yes";
