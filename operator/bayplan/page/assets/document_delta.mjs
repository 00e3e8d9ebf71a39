// Changes of the map of nodes.

/**
 * Return the document after a delta, or null if deltas between them are missing.
 *
 * Columns are changed in place; the new object marks the change.
 */
export function applyDelta(doc, delta) {
  if (!doc || delta.since !== doc.version) return null;
  for (const [node, pods, levels] of delta.nodes) {
    doc.pods[node] = pods;
    levels.forEach((level, at) => { doc.used[doc.resources[at].name][node] = level; });
  }
  return { ...doc, version: delta.version, fragmentation: delta.fragmentation ?? doc.fragmentation };
}
