// How a figure's Vega-Lite specification becomes the chart on the page: without hidden curves, as wide as there is room, with zoom.
// Nothing here touches the page; page.js does.
"use strict";

const ROOM = 75; // pixels beside a panel for its axis, before it was measured
const PADDING = 7; // pixels between a panel's frame and its outermost marks, which panels that zoom would cut in half
const PARTS = ["concat", "hconcat", "vconcat"];

const partsOf = (view) => PARTS.find((key) => view[key]);

/** Every object within a specification. */
function* objectsIn(value) {
  if (!value || typeof value !== "object") return;
  if (!Array.isArray(value)) yield value;
  for (const inner of Object.values(value)) yield* objectsIn(inner);
}

/** The encodings of every unit within a view: channel and definition. */
function* encodingsIn(view) {
  for (const object of objectsIn(view))
    if (object.encoding) for (const [channel, definition] of Object.entries(object.encoding)) yield [channel, definition];
}

/**
 * Leave out what is hidden: rows of hidden curves, panels of which nothing is left, and their names in scales and legends.
 * shown: of a row true or false, or undefined where the row belongs to no curve. Returns null where nothing is left at all.
 */
function withoutHidden(spec, shown) {
  const emptied = new Map(); // of data sets with rows of curves: whether no such row is left
  const gone = new Map(); // field → names that only hidden rows have
  for (const [name, rows] of Object.entries(spec.datasets)) {
    const told = rows.map(shown);
    if (told.every((each) => each === undefined)) continue;
    const kept = rows.filter((_, i) => told[i] !== false);
    emptied.set(name, !told.includes(true));
    for (const row of rows.filter((_, i) => told[i] === false))
      for (const [field, value] of Object.entries(row))
        if (typeof value === "string") gone.set(field, (gone.get(field) ?? new Set()).add(value));
    spec.datasets[name] = kept;
  }
  for (const rows of Object.values(spec.datasets))
    for (const row of rows) for (const [field, names] of gone) names.delete(row[field]);
  const left = withoutEmpty(spec, emptied);
  if (!left) return null;
  for (const [, definition] of [...encodingsIn(left), ["facet", left.facet ?? {}]]) {
    const names = gone.get(definition.field);
    if (names?.size) withoutNames(definition, names);
  }
  return left;
}

function withoutEmpty(view, emptied) {
  const key = partsOf(view);
  if (key) {
    view[key] = view[key].map((part) => withoutEmpty(part, emptied)).filter(Boolean);
    return view[key].length ? view : null;
  }
  const known = [...objectsIn({ ...view, datasets: null })].map((object) => object.data?.name).filter((name) => emptied.has(name));
  return known.length && known.every((name) => emptied.get(name)) ? null : view;
}

function withoutNames(definition, names) {
  const keep = (name) => !names.has(name);
  if (Array.isArray(definition.sort)) definition.sort = definition.sort.filter(keep);
  const { domain, range } = definition.scale ?? {};
  if (!Array.isArray(domain) || !domain.some((name) => names.has(name))) return;
  definition.scale = { ...definition.scale, domain: domain.filter(keep) };
  if (Array.isArray(range) && range.length === domain.length) definition.scale.range = range.filter((_, i) => keep(domain[i]));
}

/** Small multiples as panels side by side, each of which has scales of its own to zoom. */
function unfolded(spec) {
  const { facet, spec: inner, ...rest } = spec;
  if (!facet?.field) return spec;
  const rows = spec.datasets[spec.data.name];
  const names = new Set(rows.map((row) => row[facet.field]));
  const order = (Array.isArray(facet.sort) ? facet.sort : [...names]).filter((name) => names.has(name));
  const shared = rest.resolve?.scale?.x !== "independent";
  for (const [channel, definition] of encodingsIn(inner)) {
    if (channel !== "x" || !shared || definition.type !== "quantitative" || definition.scale?.domain) continue;
    const values = rows.map((row) => row[definition.field]).filter((value) => typeof value === "number");
    if (values.length) definition.scale = { ...definition.scale, domain: [Math.min(...values), Math.max(...values)] };
  }
  delete rest.data;
  delete rest.resolve;
  return {
    ...rest,
    concat: order.map((name) => ({
      ...structuredClone(inner),
      title: { text: name, anchor: "start", fontSize: 13 },
      data: spec.data,
      transform: [{ filter: { field: facet.field, equal: name } }, ...(inner.transform ?? [])],
    })),
  };
}

/** A panel's width (px) by its specification, and that of the widest row of panels with how many they are. */
function widthOf(view) {
  const rows = { concat: () => view.concat.slice(0, view.columns), hconcat: () => view.hconcat };
  const key = partsOf(view);
  if (key === "vconcat") return view.vconcat.map(widthOf).reduce((a, b) => (b.width > a.width ? b : a));
  if (key) {
    const parts = rows[key]().map(widthOf);
    return { width: parts.reduce((sum, part) => sum + part.width, 0), panels: parts.reduce((sum, part) => sum + part.panels, 0) };
  }
  return { width: typeof view.width === "number" ? view.width : 0, panels: 1 };
}

/** Put panels below one another, as far as there is no room beside. */
function stacked(view, room) {
  const key = partsOf(view);
  if (!key) return;
  const parts = view[key];
  const { width, panels } = widthOf(parts[0]);
  const wanted = key === "concat" ? (view.columns ?? parts.length) : parts.length;
  const columns = Math.max(1, Math.min(wanted, Math.floor((room * 1.1) / (width + ROOM * panels))));
  if (key === "concat") view.columns = columns;
  if (key === "hconcat" && room < 600) {
    view.vconcat = parts;
    delete view.hconcat;
    // A panel that shared the labels of the one on its left.
    for (const [channel, definition] of parts.flatMap((part) => [...encodingsIn(part)]))
      if (channel === "y" && definition.axis?.labels === false) definition.axis = { ...definition.axis, labels: true };
  }
  for (const part of parts) stacked(part, key === "concat" ? room / columns : room);
}

/** Make every panel so many times as wide. */
function widened(spec, factor) {
  for (const object of objectsIn({ ...spec, datasets: null, config: null })) {
    if (typeof object.width === "number" && (object.mark || object.layer || object.facet)) object.width *= factor;
    else if (object.width?.step) object.width = { step: object.width.step * factor };
  }
}

/** Invisible points under lines and areas that have something to tell: else they would tell their first row everywhere. */
function hoverable(view) {
  for (const object of objectsIn({ ...view, datasets: null, config: null })) {
    const type = object.mark?.type;
    if (!["line", "area"].includes(type) || object.mark.point || !object.encoding?.tooltip) continue;
    const { x, y, tooltip } = object.encoding;
    const line = { mark: object.mark, encoding: { ...object.encoding, tooltip: null } };
    object.layer = [line, { mark: { type: "point", filled: true, opacity: 0, size: 120, clip: true }, encoding: { x, y, tooltip } }];
    delete object.mark;
    delete object.encoding;
  }
}

const isNumber = (definition) => definition?.type === "quantitative" && definition.field;

/** Pan and zoom in every panel that has a numeric axis; returns whether any has. */
function zoomable(view, count = { panels: 0 }) {
  const key = partsOf(view);
  const together = key === "vconcat" && view.resolve?.scale?.x === "shared";
  if (key && !together) {
    for (const part of view[key]) zoomable(part, count);
    return count.panels > 0;
  }
  const units = [...objectsIn({ ...view, datasets: null, config: null })].filter(
    (object) => ["point", "line", "rule"].includes(object.mark?.type) && isNumber(object.encoding?.x),
  );
  const unit = units.find((object) => isNumber(object.encoding.y)) ?? units.find((object) => object.encoding.y);
  if (!unit) return count.panels > 0;
  const encodings = isNumber(unit.encoding.y) ? ["x", "y"] : ["x"];
  unit.params = [
    {
      name: `zoom${count.panels++}`,
      bind: "scales",
      select: {
        type: "interval",
        encodings,
        // A finger scrolls the page, and so does the wheel alone.
        translate: "[pointerdown[event.pointerType !== 'touch'], window:pointerup] > window:pointermove!",
        zoom: "wheel![event.shiftKey || event.ctrlKey]",
      },
    },
  ];
  for (const [channel, definition] of encodingsIn(view))
    if (encodings.includes(channel) && isNumber(definition) && definition.scale !== null)
      definition.scale = { ...definition.scale, padding: PADDING };
  return true;
}

/** The chart for `room` pixels: its specification, and whether it zooms. */
function fitted(spec, room, factor) {
  const { title, ...chart } = unfolded(spec);
  if (room < 600)
    chart.config = { ...chart.config, legend: { ...chart.config.legend, orient: "bottom", direction: "vertical", labelLimit: room - 60 } };
  stacked(chart, room);
  widened(chart, factor);
  hoverable(chart);
  const zooms = zoomable(chart);
  return { chart, zooms };
}
