"use strict";
// The data of the page: rows become objects when they are asked for, and what differs between two steps.  Draws nothing.

const DATA = JSON.parse(document.getElementById("data").textContent);
const S = (index) => (index < 0 ? null : DATA.strings[index]);
const KINDS = ["operator", "call", "get", "input"];

const nodeRows = new Map();
function nodeOf(index) {
  if (!nodeRows.has(index)) {
    const [name, kind, op, line, value, bytes, effects, stack, source, history, callees, refs] = DATA.nodes[index];
    nodeRows.set(index, {
      index, name: S(name), kind: KINDS[kind], op: S(op), line: S(line), value: S(value), bytes, effects: S(effects),
      stack: stack.map(S), source: S(source), history: historyOf(history),
      callees: callees.map(([graph, path]) => ({ graph: S(graph), path: S(path) })), refs: refs.map(S),
    });
  }
  return nodeRows.get(index);
}

// Objects of the rows of a table, each made once.
const table = (rows, made) => { const known = []; return (index) => (known[index] ||= made(rows[index])); };
const placeOf = table(DATA.places, ([graph, name, op]) => ({ graph: S(graph), name: S(name), op: S(op) }));
const importedOf = table(DATA.imported, ([name, op, module, line]) => ({ name: S(name), op: S(op), module: S(module), line: S(line) }));
const changeOf = table(DATA.changes, ([number, step, rules, before, beforeCount, after, afterCount]) => ({
  number, step: S(step), rules: rules.map(S), before: DATA.lists[before].map(placeOf), beforeCount, after: DATA.lists[after].map(placeOf), afterCount,
}));
const historyAt = table(DATA.histories, ([changes, imported, count, inputs, state]) => ({
  changes: changes.map(changeOf), imported: DATA.lists[imported].map(importedOf), count, inputs: inputs.map(S), state: state.map(S),
}));
const historyOf = (index) => (index < 0 ? null : historyAt(index));
const keyOf = (graph, name) => JSON.stringify([graph, name]);

const graphRows = new Map();
function graphOf(name, index) {
  const key = JSON.stringify([name, index]);
  if (!graphRows.has(key)) graphRows.set(key, makeGraph(name, index));
  return graphRows.get(key);
}

function makeGraph(name, index) {
  const [inputs, nodes, output, refs] = DATA.graphs[index];
  const all = [...inputs, ...nodes].map(nodeOf);
  const graph = { name, all, output: S(output), refs: refs.map(S), at: new Map(), users: new Map(), place: new Map() };
  all.forEach((node, place) => {
    graph.at.set(node.name, node);
    graph.place.set(node.name, place);
    for (const used of node.refs) {
      if (!graph.users.has(used)) graph.users.set(used, []);
      graph.users.get(used).push(node.name);
    }
  });
  return graph;
}

const versionRows = [];
function versionOf(index) {
  if (!versionRows[index]) {
    const row = DATA.versions[index];
    const version = {
      index, step: S(row.step), number: row.number, root: S(row.root), totals: row.totals, parts: row.parts,
      findings: row.findings.map((one) => ({
        rule: S(one.rule), message: S(one.message), graph: S(one.graph), node: S(one.node), where: S(one.where),
        context: one.context.map(S), source: S(one.source), advice: S(one.advice), count: one.count,
      })),
      graphs: new Map(), sizes: new Map(),
    };
    for (const [name, graph] of row.graphs) version.graphs.set(S(name), graph);
    for (const [name, graph] of version.graphs) version.graphs.set(name, graphOf(name, graph));
    for (const module of row.modules) addSizes(version.sizes, DATA.modules[module]);
    versionRows[index] = version;
  }
  return versionRows[index];
}

// Sizes of a module with what is below it, by path.
function addSizes(sizes, [path, type, operators, parameters, bytes, flops]) {
  const name = S(path), parts = name === "" ? [] : name.split(".");
  for (let depth = 0; depth <= parts.length; depth++) {
    const key = parts.slice(0, depth).join(".");
    if (!sizes.has(key)) sizes.set(key, { type: null, operators: 0, parameters: 0, bytes: 0, flops: null });
    const sum = sizes.get(key);
    sum.operators += operators; sum.parameters += parameters; sum.bytes += bytes;
    if (flops !== null) sum.flops = (sum.flops || 0) + flops;
  }
  sizes.get(name).type = S(type);
}

const LAST = DATA.versions.length - 1;
const joined = (outer, inner) => (inner === null ? outer : inner.startsWith("/") ? inner.slice(1) : outer ? outer + "." + inner : inner);

// What happened to a node since a version: the changes after it, the first of them last.
const since = (node, number) => (node.history && number >= 0 ? node.history.changes.filter((one) => one.number > number) : []);

function markOf(left, graph, node, number) {
  const there = left.graphs.get(graph) && left.graphs.get(graph).at.get(node.name);
  const changes = since(node, number);
  if (there && there.line === node.line && there.kind === node.kind) {
    return { kind: there.stack.join() === node.stack.join() ? "same" : "moved", from: [{ graph, name: node.name }], changes };
  }
  const from = changes.length ? changes[changes.length - 1].before : [];
  if (there) return { kind: "changed", from: [{ graph, name: node.name }], changes };
  const is_moved = from.length && !changes.some((one) => one.rules.length) && from.every((one) => one.op === node.op);
  return { kind: is_moved ? "moved" : "added", from, changes };
}

// All that differs between two versions: marks of the nodes of each, by place, and a list.
const comparisons = new Map();
function compare(first, second) {
  const key = first + ":" + second;
  if (comparisons.has(key)) return comparisons.get(key);
  const left = versionOf(first), right = versionOf(second);
  const found = { left: new Map(), right: new Map(), list: [], counts: { added: 0, removed: 0, changed: 0, moved: 0 } };
  const fate = new Map();
  for (const [name, graph] of right.graphs) {
    if (left.graphs.get(name) === graph) continue;
    for (const node of graph.all) {
      const mark = markOf(left, name, node, left.number);
      found.right.set(keyOf(name, node.name), mark);
      // A call is made of all that its body computes, which is told where it stands.
      if (node.kind !== "call" || mark.kind !== "added") for (const place of mark.from) {
        const there = keyOf(place.graph, place.name);
        if (!fate.has(there)) fate.set(there, []);
        fate.get(there).push({ mark, graph: name, node });
      }
      if (mark.kind !== "same") found.list.push({ kind: mark.kind, graph: name, node, mark });
    }
  }
  for (const [name, graph] of left.graphs) {
    if (right.graphs.get(name) === graph) continue;
    for (const node of graph.all) {
      const now = right.graphs.get(name) && right.graphs.get(name).at.get(node.name);
      const went = fate.get(keyOf(name, node.name));
      const kind = now ? found.right.get(keyOf(name, node.name)).kind : went && went.some((one) => one.mark.kind === "moved") ? "moved" : "removed";
      found.left.set(keyOf(name, node.name), { kind, went });
      if (kind === "removed") found.list.push({ kind, graph: name, node, went, step: now ? null : goneAt(first, second, name, node.name) });
    }
  }
  for (const one of found.list) found.counts[one.kind] += 1;
  comparisons.set(key, found);
  return found;
}

function goneAt(first, second, graph, name) {
  for (let index = first + 1; index <= second; index++) {
    const there = versionOf(index).graphs.get(graph);
    if (!there || !there.at.has(name)) return versionOf(index);
  }
  return null;
}

// Which steps and rules did it, in words.
const byWhom = (changes) => changes.slice().reverse().map((one) => "step " + one.number + " " + one.step + (one.rules.length ? " by " + one.rules.join(", ") : "")).join("; ");

// The graph to look at on the left while one is on the right.
function counterpart(first, second, name) {
  const left = versionOf(first), graph = versionOf(second).graphs.get(name);
  if (left.graphs.has(name) && name !== left.root) return name;
  const votes = new Map();
  for (const node of graph ? graph.all : []) for (const place of (compare(first, second).right.get(keyOf(name, node.name)) || { from: [] }).from) votes.set(place.graph, (votes.get(place.graph) || 0) + 1);
  const best = [...votes].filter(([one]) => left.graphs.has(one)).sort((a, b) => b[1] - a[1])[0];
  return best ? best[0] : left.graphs.has(name) ? name : left.root;
}
