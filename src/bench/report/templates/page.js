// What the page does: draws the figures one after another, filters them and the tables, sorts, and prints. charts.js stands before it.
"use strict";

{
  const known = JSON.parse(document.getElementById("curves").textContent);
  const hidden = { deployment: new Set(), family: new Set() };
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  // What is shown

  const isShown = (deployment, family) => !hidden.deployment.has(deployment) && !hidden.family.has(family);

  /** Whether a row of a chart's data is shown; undefined where it is about no deployment or workload. */
  function rowIsShown(row) {
    if (known.curves[row.curve]) return isShown(...known.curves[row.curve]);
    if (row.deployment ?? row.workload ?? row.family) return isShown(row.deployment, row.family ?? known.workloads[row.workload]);
    if (row.model)
      return Object.entries(known.deployments).some(([name, model]) => model === row.model && !hidden.deployment.has(name));
    return undefined;
  }

  // Figures

  const tip = make("div", { className: "tip", hidden: true });
  document.body.append(tip);

  function showTip(_handler, event, _item, value) {
    tip.hidden = value == null;
    if (tip.hidden) return;
    const rows = typeof value === "object" ? Object.entries(value).filter(([, text]) => text !== "null") : [["", value]];
    tip.replaceChildren(
      ...rows.flatMap(([name, text]) => [make("span", {}, name.replaceAll("_", " ")), make("span", {}, String(text))]),
    );
    const { offsetWidth: width, offsetHeight: height } = tip;
    const roomBelow = window.innerHeight - event.clientY;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, window.innerWidth - width - 8))}px`;
    tip.style.top = `${roomBelow > height + 20 ? event.clientY + 14 : event.clientY - height - 10}px`;
  }

  const LOG_ERRORS = 1; // a layer without rows, such as that of invalid runs, is worth no warning
  const OPTIONS = { actions: false, renderer: "svg", defaultStyle: false, logLevel: LOG_ERRORS, tooltip: showTip };

  /** The Vega view of a specification, drawn in `place`. It waits for nothing but itself, so it is there before paper is printed. */
  const viewOf = async (place, spec) => (await vegaEmbed(place, spec, OPTIONS)).view;

  class Figure {
    constructor(element) {
      this.element = element;
      this.place = element.querySelector(".chart");
      this.text = element.querySelector("script").textContent;
      this.title = element.querySelector("h3").firstChild.textContent.trim();
      this.zooming = make("span");
      for (const [label, act] of [
        ["Zoom in", () => this.zoom(-400)],
        ["Zoom out", () => this.zoom(400)],
        ["Show all", () => this.toPanels((at) => new MouseEvent("dblclick", at))],
      ])
        this.zooming.append(button(label, `${label}: ${this.title}`, act));
      const download = make("details", { className: "download" }, make("summary", {}, "Download"));
      for (const kind of ["SVG", "PNG"])
        download.append(button(kind, `Download ${kind}: ${this.title}`, () => this.save(kind.toLowerCase())));
      this.place.before(make("div", { className: "tools" }, this.zooming, download));
      this.place.addEventListener("wheel", turnWheel, { capture: true, passive: false });
    }

    /** Its specification without what is hidden; null where nothing is left. */
    spec() {
      return withoutHidden(JSON.parse(this.text), rowIsShown);
    }

    /** Draw it as wide as `room` pixels: once, and again where its legends and labels left more or less room than thought. */
    async draw(room) {
      this.view?.finalize();
      this.place.style.minHeight = `${this.place.offsetHeight}px`; // what stands below keeps its place meanwhile
      let wanted;
      for (let attempt = 0; attempt < 3; attempt++) {
        const spec = this.spec();
        this.zooming.hidden = !spec;
        if (!spec) {
          this.view = null;
          this.place.replaceChildren(make("p", { className: "nothing" }, "Everything in this figure is hidden by the filter."));
          break;
        }
        const { chart, zooms, factor } = fitted(spec, room, wanted);
        this.zooming.hidden = !zooms;
        this.view = await viewOf(this.place, chart);
        const drawn = Number(this.place.querySelector("svg").getAttribute("width"));
        const panels = widthOf(chart).width;
        if (!performance.getEntriesByName("first-chart").length) performance.mark("first-chart");
        wanted = within(factor * (panels ? (panels + room - drawn) / panels : room / drawn)) * 0.995;
        if (drawn <= room && (!panels || wanted < 1.2 * factor)) break;
        this.view.finalize();
      }
      this.place.style.minHeight = "";
    }

    /** Send an event, made of coordinates, to the middle of each panel: to the innermost of the groups that lie on one another. */
    toPanels(event) {
      const middles = [];
      for (const panel of [...this.place.querySelectorAll(".role-frame > g > .background, .role-scope > g > .background")].reverse()) {
        const { left, top, width, height } = panel.getBoundingClientRect();
        const [clientX, clientY] = [left + width / 2, top + height / 2];
        const known = middles.some(([x, y]) => Math.hypot(x - clientX, y - clientY) < 8);
        if (known || !width || !height || panel.closest(".role-legend")) continue;
        middles.push([clientX, clientY]);
        panel.dispatchEvent(event({ clientX, clientY, bubbles: true, cancelable: true, view: window }));
      }
    }

    zoom(deltaY) {
      this.toPanels((at) => new WheelEvent("wheel", { ...at, deltaY, ctrlKey: true }));
    }

    /** The whole figure with its title, as the files have it, but without what is hidden. */
    async save(kind) {
      const spec = this.spec();
      if (!spec) return;
      const view = await viewOf(make("div"), spec);
      const url = await view.toImageURL(kind, 2);
      view.finalize();
      make("a", { href: url, download: `${this.element.dataset.name}.${kind}` }).click();
    }
  }

  function button(text, label, act) {
    const element = make("button", { type: "button", onclick: act }, text);
    element.setAttribute("aria-label", label);
    return element;
  }

  /** With Shift some browsers turn the wheel sideways: turn it back. */
  function turnWheel(event) {
    if (!event.shiftKey || event.deltaY || !event.deltaX) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const { clientX, clientY, deltaX, deltaMode } = event;
    const turned = { clientX, clientY, deltaY: deltaX, deltaMode, ctrlKey: true, bubbles: true, cancelable: true, view: window };
    event.target.dispatchEvent(new WheelEvent("wheel", turned));
  }

  const figures = [...document.querySelectorAll("main figure")].map((element) => new Figure(element));
  const inView = ({ element }) => {
    const { top, bottom } = element.getBoundingClientRect();
    return top < window.innerHeight && bottom > 0;
  };
  let turn = 0;

  /** Draw all figures: what is in view, then what is soon done. What was begun before and is not done yet is left. */
  async function drawAll() {
    const mine = ++turn;
    const left = [...figures].sort((a, b) => a.text.length - b.text.length);
    while (left.length) {
      await new Promise((go) => setTimeout(go)); // lets the browser show what is drawn, and heed its reader
      if (mine !== turn) return;
      const [figure] = left.splice(Math.max(0, left.findIndex(inView)), 1);
      await figure.draw(figure.place.clientWidth).catch((error) => {
        figure.place.replaceChildren(make("p", { className: "nothing" }, `This figure could not be drawn: ${error.message}`));
        console.error(error); // and the others still are
      });
    }
    performance.mark("all-charts");
  }

  // The filter

  function buildFilter() {
    const box = document.getElementById("filter");
    const names = { deployment: Object.keys(known.deployments), family: known.families };
    const groups = { deployment: "Deployments", family: "Workloads" };
    const several = Object.keys(names).filter((kind) => names[kind].length > 1);
    if (!several.length) return;
    const summaryText = box.querySelector("span");
    const updateSummary = () => {
      summaryText.textContent = several
        .map((kind) => `${names[kind].length - hidden[kind].size} of ${names[kind].length} ${groups[kind].toLowerCase()}`)
        .join(", ");
    };
    for (const kind of several) {
      const checks = names[kind].map((name) => {
        const check = make("input", { type: "checkbox", checked: true, name: kind, value: name });
        check.addEventListener("change", () => hide([[check, check.checked]]));
        const model = kind === "deployment" && known.deployments[name] !== name ? known.deployments[name] : "";
        return [check, make("label", {}, check, ` ${name}`, make("small", {}, model ? ` ${model}` : ""))];
      });
      const hide = (changes) => {
        for (const [check, on] of changes) {
          check.checked = on;
          hidden[kind][on ? "delete" : "add"](check.value);
        }
        apply();
        updateSummary();
      };
      const all = (on) => hide(checks.map(([check]) => [check, on]));
      box.append(
        make(
          "fieldset", {}, make("legend", {}, groups[kind]),
          button("All", `Show all ${groups[kind].toLowerCase()}`, () => all(true)),
          button("None", `Hide all ${groups[kind].toLowerCase()}`, () => all(false)),
          ...checks.map(([, label]) => label),
        ),
      );
    }
    updateSummary();
    box.hidden = false;
  }

  let waiting;
  function apply() {
    for (const element of document.querySelectorAll("main [data-deployment], main [data-family]"))
      element.hidden = !isShown(element.dataset.deployment, element.dataset.family);
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 120); // several boxes in a row are one change
  }

  // Tables

  /** What a cell sorts by: a number, a text, or nothing where it has none. */
  function keyOf(cell) {
    if (!cell) return null;
    const { value } = cell.dataset;
    if (value === undefined) return cell.textContent.trim() || null;
    return value === "" ? null : Number.isNaN(Number(value)) ? value : Number(value);
  }

  function sortBy(table, column) {
    const heads = [...table.tHead.rows[0].cells];
    const down = heads[column].getAttribute("aria-sort") === "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
    const compare = (a, b) =>
      typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    const rows = [...table.tBodies[0].rows].map((row) => [keyOf(row.cells[column]), row]);
    rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : compare(a, b) * (down ? -1 : 1)));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }

  for (const table of document.querySelectorAll("table[data-sorts]"))
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const press = make("button", { type: "button", onclick: () => sortBy(table, column) }, ...head.childNodes);
      head.replaceChildren(press);
    });

  // Paper, and other widths

  let opened = [];
  addEventListener("beforeprint", () => {
    turn++;
    opened = [...document.querySelectorAll("main details:not([open])")];
    for (const details of opened) details.open = true;
    for (const figure of figures) figure.draw(960); // shrunk to A4 upright, where letters have 7.5 points; done before the pages are made
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
    drawAll();
  });

  let width = window.innerWidth;
  addEventListener("resize", () => {
    if (Math.abs(window.innerWidth - width) < 8 || matchMedia("print").matches) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 200);
  });

  buildFilter();
  drawAll();
}
