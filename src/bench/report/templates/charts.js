// How a figure's Vega-Lite specification becomes the chart on the page: without hidden curves, as wide as there is room, with zoom.
// Nothing here touches the page; page.js does.
"use strict";

// Pixels, before anything is measured: beside a panel for its axis or none, and beside all for a legend.
const AXIS = 75;
const NO_AXIS = 14;
const LEGEND = 160;
const LETTER = 0.6; // of its font size, a letter's width
const NARROW = 600; // a phone's room
const LEAST = 240; // a panel's width from which on it stands beside others
const SQUEEZED = 0.5; // of its planned width, below which a panel is too narrow
const PADDING = 7; // pixels between a panel's frame and its outermost marks, which panels that zoom would cut in half
const PARTS = ["concat", "hconcat", "vconcat"];

const partsOf = (view) => PARTS.find((key) => view[key]);

/** Every object within a specification, but for its data and its looks. */
function* objectsIn(value) {
  if (!value || typeof value !== "object") return;
  if (!Array.isArray(value)) yield value;
  for (const [key, inner] of Object.entries(value)) if (key !== "datasets" && key !== "config") yield* objectsIn(inner);
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
    const shows = rows.map(shown);
    if (shows.every((each) => each === undefined)) continue;
    const kept = rows.filter((_, i) => shows[i] !== false);
    emptied.set(name, !shows.includes(true));
    for (const row of rows.filter((_, i) => shows[i] === false))
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

/** A view less its panels that have nothing left; null where that is all of it. */
function withoutEmpty(view, emptied) {
  const known = [...objectsIn(view)].map((object) => object.data?.name).filter((name) => emptied.has(name));
  if (known.length && known.every((name) => emptied.get(name))) return null;
  const key = partsOf(view);
  if (key) view[key] = view[key].map((part) => withoutEmpty(part, emptied)).filter(Boolean);
  return view;
}

function withoutNames(definition, names) {
  const keep = (name) => !names.has(name);
  if (Array.isArray(definition.sort)) definition.sort = definition.sort.filter(keep);
  const { domain, range } = definition.scale ?? {};
  if (!Array.isArray(domain) || !domain.some((name) => names.has(name))) return;
  definition.scale = { ...definition.scale, domain: domain.filter(keep) };
  if (Array.isArray(range) && range.length === domain.length) definition.scale.range = range.filter((_, i) => keep(domain[i]));
}

/**
 * Small multiples as panels side by side, each of which has scales of its own to zoom. Those in rows and columns, which have common
 * headings, only where they must stand below one another.
 */
function unfolded(spec, narrow) {
  const { facet, spec: inner, ...rest } = spec;
  if (!facet || !(facet.field || narrow)) return spec;
  const rows = spec.datasets[spec.data.name];
  const fields = facet.field ? [facet] : [facet.row, facet.column].filter(Boolean);
  const place = (row) => fields.map(({ field, sort }) => (Array.isArray(sort) ? sort.indexOf(row[field]) : 0));
  const order = new Map(rows.map((row) => [fields.map(({ field }) => row[field]).join(" · "), row]));
  const panels = [...order].sort(([, a], [, b]) => place(a).reduce((known, at, i) => known || at - place(b)[i], 0));
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
    concat: panels.map(([name, row]) => ({
      ...structuredClone(inner),
      title: { text: name, anchor: "start", fontSize: 13 },
      data: spec.data,
      transform: [...fields.map(({ field }) => ({ filter: { field, equal: row[field] } })), ...(inner.transform ?? [])],
    })),
  };
}

/** Of the widest row of panels: the `width` (px) of these by their specification, and what their axes take `beside`. */
function widthOf(view) {
  const key = partsOf(view);
  if (!key) {
    const bare = [...encodingsIn(view)].some(([channel, { axis }]) => channel === "y" && axis?.labels === false);
    return { width: typeof view.width === "number" ? view.width : 0, beside: bare ? NO_AXIS : AXIS };
  }
  const parts = (key === "concat" ? view.concat.slice(0, view.columns) : view[key]).map(widthOf);
  if (key === "vconcat") return parts.reduce((a, b) => (b.width > a.width ? b : a));
  return parts.reduce((a, b) => ({ width: a.width + b.width, beside: a.beside + b.beside }));
}

/** Put panels below one another, as far as there is no room beside. */
function stacked(view, room) {
  const key = partsOf(view);
  if (!key) return;
  const parts = view[key];
  const { width, beside } = widthOf(parts[0]);
  const least = Math.min(width, Math.max(LEAST, SQUEEZED * width));
  const most = Math.max(1, Math.min(view.columns ?? parts.length, Math.floor(room / (least + beside))));
  const columns = Math.ceil(parts.length / Math.ceil(parts.length / most)); // rows as full as each other
  if (key === "concat") view.columns = columns;
  if (key === "hconcat" && room < NARROW) {
    view.vconcat = parts;
    delete view.hconcat;
    // A panel that shared the labels of the one on its left.
    for (const [channel, definition] of parts.flatMap((part) => [...encodingsIn(part)]))
      if (channel === "y" && definition.axis?.labels === false) definition.axis = { ...definition.axis, labels: true };
  }
  for (const part of parts) stacked(part, key === "concat" ? room / columns : room);
}

/**
 * Break headings so that they stay within `room`, those of panels within that of a `panel`; a line that is indented goes on the one
 * before it.
 */
function wrapped(view, room, panel) {
  for (const { title, ...object } of objectsIn(view))
    for (const [key, size] of [["text", title?.fontSize ?? 13], ["subtitle", title?.subtitleFontSize ?? 12]]) {
      if (!title?.[key]) continue;
      const lines = [title[key]].flat().join("\n").replace(/\n +/g, " ").split("\n");
      const pieces = new RegExp(`.{1,${Math.floor((partsOf(object) ? room : panel) / (LETTER * size))}}(\\s|$)`, "g");
      title[key] = lines.flatMap((line) => line.match(pieces) ?? [line]);
    }
}

/** Make every panel so many times as wide, and as high where a page is small. */
function widened(spec, factor, small) {
  for (const object of objectsIn(spec)) {
    if (typeof object.width === "number" && (object.mark || object.layer || object.facet)) {
      object.width *= factor;
      if (small && typeof object.height === "number") object.height *= Math.max(SQUEEZED, factor);
    }
    else if (object.width?.step) object.width = { step: object.width.step * factor };
  }
}

/** Invisible points under lines and areas that have a tooltip: else they would show their first row everywhere. */
function hoverable(view) {
  for (const object of objectsIn(view)) {
    const type = object.mark?.type;
    if (!["line", "area"].includes(type) || object.mark.point || !object.encoding?.tooltip) continue;
    const { tooltip, ...encoding } = object.encoding;
    const at = Object.fromEntries(Object.entries(encoding).filter(([channel]) => ["x", "y"].includes(channel)));
    const line = { mark: object.mark, encoding };
    object.layer = [line, { mark: { type: "point", filled: true, opacity: 0, size: 120, clip: true }, encoding: { ...at, tooltip } }];
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
  const units = [...objectsIn(view)].filter(
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
      definition.scale = { ...definition.scale, padding: PADDING, nice: false };
  return true;
}

/**
 * The chart for `room` pixels: its specification, whether it zooms, and the factor by which its panels are wider than planned,
 * guessed where it is not given.
 */
function fitted(spec, room, factor) {
  const narrow = room < NARROW;
  const { title, ...chart } = unfolded(spec, narrow);
  stacked(chart, room);
  const { width, beside } = widthOf(chart);
  const below = narrow || (room - beside - LEGEND) / width < SQUEEZED;
  if (below) {
    const looks = narrow ? { direction: "vertical", columns: 1, labelLimit: room - 100 } : { direction: "horizontal", columns: 2 };
    chart.config = { ...chart.config, legend: { ...chart.config.legend, orient: "bottom", ...looks } };
    for (const [, definition] of narrow ? encodingsIn(chart) : []) if (definition.legend?.labelLimit) delete definition.legend.labelLimit;
  }
  const guess = width ? within((room - beside - (below || !legendBeside(chart) ? 0 : LEGEND)) / width) : 1;
  const panels = Math.max(1, Math.round(beside / AXIS));
  wrapped(chart, room, ((factor ?? guess) * width) / panels + (narrow ? 0 : AXIS / 2) || room - AXIS);
  widened(chart, factor ?? guess, below && !narrow);
  hoverable(chart);
  return { chart, zooms: zoomable(chart), factor: factor ?? guess };
}

/** Whether a legend stands at the right: there is one, and none was put below. */
function legendBeside(chart) {
  const shows = [...encodingsIn(chart)].filter(([channel, { legend, scale }]) => ["color", "shape"].includes(channel) && legend !== null && scale !== null);
  return shows.length > 0 && !shows.some(([, { legend }]) => legend?.orient === "bottom");
}

/** How far panels may be narrowed and widened. */
function within(factor) {
  return Math.max(0.5, Math.min(1.7, factor));
}
