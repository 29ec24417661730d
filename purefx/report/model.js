"use strict";
// The data of the page: rows become objects when they are asked for, and what differs between two steps.  Draws nothing.

const DATA = JSON.parse(document.getElementById("data").textContent);
const S = (index) => (index < 0 ? null : DATA.strings[index]);
const KINDS = ["operator", "call", "get", "input"];

const nodeRows = new Map();
function nodeOf(index) {
  if (!nodeRows.has(index)) {
    const [name, kind, op, line, value, bytes, source, effects, stack, callees, refs] = DATA.nodes[index];
    nodeRows.set(index, {
      index, name: S(name), kind: KINDS[kind], op: S(op), line: S(line), value: S(value), bytes, effects: S(effects),
      stack: stack.map(S), source: S(source),
      callees: callees.map(([graph, path]) => ({ graph: S(graph), path: S(path) })), refs: refs.map(S),
    });
  }
  return nodeRows.get(index);
}

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
      index, step: S(row.step), root: S(row.root), totals: row.totals, parts: row.parts,
      findings: row.findings.map((one) => ({
        rule: S(one.rule), message: S(one.message), graph: S(one.graph), node: S(one.node), where: S(one.where),
        context: one.context.map(S), source: S(one.source), advice: S(one.advice), count: one.count,
      })),
      graphs: new Map(), sizes: new Map(),
    };
    for (const [name, graph] of row.graphs) version.graphs.set(S(name), graph);
    for (const [name, graph] of version.graphs) version.graphs.set(name, graphOf(name, graph));
    for (const module of row.modules) addSizes(version.sizes, module);
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

function markOf(left, graph, node) {
  const there = left.graphs.get(graph) && left.graphs.get(graph).at.get(node.name);
  if (!there) return "added";
  if (there.line !== node.line || there.kind !== node.kind) return "changed";
  return there.stack.join() === node.stack.join() ? "same" : "moved";
}

// All that differs between two versions: marks of the nodes of each, by place, and a list.
const comparisons = new Map();
function compare(first, second) {
  const key = first + ":" + second;
  if (comparisons.has(key)) return comparisons.get(key);
  const left = versionOf(first), right = versionOf(second);
  const found = { left: new Map(), right: new Map(), list: [], counts: { added: 0, removed: 0, changed: 0, moved: 0 } };
  for (const [name, graph] of right.graphs) {
    if (left.graphs.get(name) === graph) continue;
    for (const node of graph.all) {
      const kind = markOf(left, name, node);
      found.right.set(keyOf(name, node.name), kind);
      if (kind !== "same") found.list.push({ kind, graph: name, node });
    }
  }
  for (const [name, graph] of left.graphs) {
    if (right.graphs.get(name) === graph) continue;
    for (const node of graph.all) {
      const kind = found.right.get(keyOf(name, node.name)) || "removed";
      found.left.set(keyOf(name, node.name), kind);
      if (kind === "removed") found.list.push({ kind, graph: name, node });
    }
  }
  for (const one of found.list) found.counts[one.kind] += 1;
  comparisons.set(key, found);
  return found;
}
