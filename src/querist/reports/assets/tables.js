"use strict";
// Tables: drawn from embedded JSON when they come into view; sorted, filtered, paged, saved as CSV.
(() => {
  const SIZES = [25, 100, 500];
  const PRINT_ROWS = 60;
  const PRINT_CHARS = 118; // of the print size on a line of A4

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name in node && name !== "role" && name !== "for") node[name] = value;
      else node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  };

  // The same rules as `number` in present.py.
  const number = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    let text;
    if (size < 1e9 && Number.isInteger(value)) text = value.toLocaleString("en-US");
    else if (size >= 1e-3 && size < 1e6) {
      const digits = Math.max(0, 3 - Math.floor(Math.log10(size)));
      const rounded = Number(value.toPrecision(4));
      text = rounded.toLocaleString("en-US", { maximumFractionDigits: digits });
    } else {
      const [mantissa, exponent] = value.toExponential(3).split("e");
      text = `${Number(mantissa)}e${Number(exponent)}`;
    }
    return text.replaceAll("-", "−");
  };
  const shown = (value) => {
    if (value === null || value === undefined) return "–";
    if (Array.isArray(value)) return value.length ? value.map((v) => (Number.isInteger(v) ? String(v) : shown(v))).join(", ") : "–";
    return typeof value === "number" ? number(value) : String(value);
  };
  const whole = (value) => (value === null ? "no value" : Array.isArray(value) ? JSON.stringify(value) : String(value));
  const numeric = (kind) => kind === "int" || kind === "float";
  const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

  class Table {
    constructor(root) {
      this.root = root;
      const data = JSON.parse(document.getElementById(`table-${root.dataset.table}`).textContent);
      Object.assign(this, data);
      this.height = this.values.length ? this.values[0].length : 0;
      this.keyed = new Set(this.key.map((name) => this.columns.findIndex((c) => c[0] === name)));
      if (!this.keyed.size) this.keyed.add(0);
      this.hidden = new Set();
      this.columns.forEach((_, i) => {
        if (!this.keyed.has(i) && this.height && this.values[i].every((v) => v === null)) this.hidden.add(i);
      });
      this.empty = this.hidden.size;
      if (this.shown.length)
        this.columns.forEach((c, i) => {
          if (!this.keyed.has(i) && !this.shown.includes(c[0])) this.hidden.add(i);
        });
      this.folded = this.hidden.size - this.empty;
      this.sort = null;
      this.page = 0;
      this.size = SIZES[0];
      this.filter = "";
      this.controls();
      this.draw();
    }

    controls() {
      this.search = make("input", {
        type: "search",
        placeholder: "Filter: words, or column<2",
        "aria-label": `Filter table ${this.name}`,
        title: "Words that a row must contain, or comparisons such as alpha<2 or status=ok; several are combined.",
        oninput: () => {
          this.filter = this.search.value;
          this.page = 0;
          this.draw();
        },
      });
      const boxes = this.columns.map((column, i) => {
        const box = make("input", {
          type: "checkbox",
          checked: !this.hidden.has(i),
          disabled: this.keyed.has(i),
          onchange: () => {
            if (box.checked) this.hidden.delete(i);
            else this.hidden.add(i);
            this.draw();
          },
        });
        return [box, make("label", { title: column[3] }, box, ` ${column[0]}`)];
      });
      const all = (on) => () => {
        boxes.forEach(([box], i) => {
          if (this.keyed.has(i)) return;
          box.checked = on;
          if (on) this.hidden.delete(i);
          else this.hidden.add(i);
        });
        this.draw();
      };
      this.chooser = make("summary", {});
      const columns = make(
        "details",
        { className: "chooser" },
        this.chooser,
        make(
          "div",
          { className: "boxes" },
          make(
            "p",
            {},
            make("button", { type: "button", onclick: all(true) }, "All"),
            make("button", { type: "button", onclick: all(false) }, "None"),
          ),
          ...boxes.map(([, label]) => label),
        ),
      );
      columns.addEventListener("keydown", (event) => {
        if (event.key !== "Escape") return;
        columns.open = false;
        this.chooser.focus();
      });
      document.addEventListener("click", (event) => {
        if (!columns.contains(event.target)) columns.open = false;
      });
      const save = make(
        "button",
        { type: "button", title: "The rows that match the filter, in this order, with every column and digit.", onclick: () => this.save() },
        "CSV",
      );
      this.root.querySelector(".bar").append(make("div", { className: "controls" }, this.search, columns, save));
      this.foot = make("div", { className: "pager" });
      this.root.querySelector(".scroll").after(this.foot);
    }

    order() {
      const tests = this.filter
        .trim()
        .split(/\s+/)
        .filter(Boolean)
        .map((token) => this.test(token));
      let rows = [];
      for (let i = 0; i < this.height; i++) if (tests.every((test) => test(i))) rows.push(i);
      if (this.sort) {
        const values = this.values[this.sort.column];
        const sign = this.sort.down ? -1 : 1;
        const compare = (a, b) =>
          typeof a === "number" && typeof b === "number"
            ? a - b
            : String(a).localeCompare(String(b), "en", { numeric: true });
        const missing = (v) => v === null || v === undefined;
        rows.sort((i, j) => {
          const [a, b] = [values[i], values[j]];
          if (missing(a) || missing(b)) return missing(a) - missing(b) || i - j; // rows without a value stay last
          return sign * compare(a, b) || i - j;
        });
      }
      return rows;
    }

    test(token) {
      const parts = /^([^<>=!]+)(<=|>=|!=|=|<|>)(.+)$/.exec(token);
      const column = parts ? this.columns.findIndex((c) => c[0] === parts[1]) : -1;
      if (column >= 0) {
        const values = this.values[column];
        const limit = Number(parts[3]);
        const compare = {
          "<": (v) => v < limit,
          ">": (v) => v > limit,
          "<=": (v) => v <= limit,
          ">=": (v) => v >= limit,
          "=": (v) => (typeof v === "number" ? v === limit : whole(v).toLowerCase() === parts[3].toLowerCase()),
          "!=": (v) => (typeof v === "number" ? v !== limit : whole(v).toLowerCase() !== parts[3].toLowerCase()),
        }[parts[2]];
        return (i) => values[i] !== null && compare(values[i]);
      }
      const word = token.toLowerCase();
      const places = this.columns.map((_, i) => i).filter((i) => !this.hidden.has(i));
      return (i) =>
        places.some((c) => {
          const value = this.values[c][i];
          return value !== null && (whole(value).toLowerCase().includes(word) || shown(value).toLowerCase().includes(word));
        });
    }

    cell(column, row) {
      const value = this.values[column][row];
      const key = this.keyed.has(column);
      const node = document.createElement(key ? "th" : "td");
      if (key) node.scope = "row";
      const kind = this.columns[column][1];
      node.className = value === null ? "none" : numeric(kind) ? "num" : kind === "bool" ? "bool" : "";
      if (value === null && numeric(kind)) node.className = "num none";
      node.textContent = shown(value);
      if (value === null) node.title = "no value";
      else if (typeof value === "number" || String(value).length > 40) node.title = whole(value);
      if (column === this.firstKey) node.classList.add("pin");
      return node;
    }

    header(column) {
      const [name, kind, unit, meaning] = this.columns[column];
      if (this.printing) return make("th", { scope: "col", className: numeric(kind) ? "num" : "" }, unit ? `${name}, ${unit}` : name);
      const sorted = this.sort?.column === column ? this.sort : null;
      const button = make(
        "button",
        { type: "button", title: [meaning, unit && `Unit: ${unit}`].filter(Boolean).join(" "), onclick: () => this.turn(column) },
        name,
        unit ? make("span", { className: "unit" }, ` ${unit}`) : null,
        make("span", { className: "arrow", "aria-hidden": "true" }, sorted ? (sorted.down ? "▼" : "▲") : ""),
      );
      const node = make("th", { scope: "col", className: numeric(kind) ? "num" : "" }, button);
      node.dataset.column = column;
      node.setAttribute("aria-sort", sorted ? (sorted.down ? "descending" : "ascending") : "none");
      if (column === this.firstKey) node.classList.add("pin");
      return node;
    }

    turn(column) {
      const first = numeric(this.columns[column][1]); // of a number the largest first, of a name the alphabet
      if (this.sort?.column !== column) this.sort = { column, down: first };
      else if (this.sort.down === first) this.sort = { column, down: !first };
      else this.sort = null;
      this.page = 0;
      this.draw();
      this.root.querySelector(`thead th[data-column="${column}"] button`).focus();
      querist.say(
        this.sort ? `Sorted by ${this.columns[column][0]}, ${this.sort.down ? "descending" : "ascending"}` : "In the order of the table",
      );
    }

    grid(columns, rows) {
      const head = make("tr", {}, ...columns.map((c) => this.header(c)));
      const body = make("tbody", {}, ...rows.map((r) => make("tr", {}, ...columns.map((c) => this.cell(c, r)))));
      return make("table", { className: "data" }, make("thead", {}, head), body);
    }

    draw() {
      const columns = this.columns.map((_, i) => i).filter((i) => !this.hidden.has(i));
      this.firstKey = [...this.keyed][0];
      if (columns[0] !== this.firstKey) columns.unshift(...columns.splice(columns.indexOf(this.firstKey), 1));
      const order = this.order();
      const pages = Math.max(1, Math.ceil(order.length / this.size));
      this.page = Math.min(this.page, pages - 1);
      const start = this.page * this.size;
      const rows = order.slice(start, start + this.size);
      this.current = order;
      const grid = this.grid(columns, rows);
      grid.setAttribute("aria-rowcount", order.length);
      const scroll = this.root.querySelector(".scroll");
      const left = scroll.scrollLeft;
      scroll.replaceChildren(grid);
      scroll.scrollLeft = left;
      this.chooser.textContent = `Columns ${columns.length}/${this.columns.length}`;
      this.pager(order, start, rows.length, pages);
    }

    pager(order, start, count, pages) {
      const told = [];
      if (!order.length) told.push(this.height ? "No row matches the filter." : "No rows.");
      else told.push(`Rows ${number(start + 1)}–${number(start + count)} of ${number(order.length)}`);
      if (order.length && order.length < this.height) told.push(`matching, of ${number(this.height)}`);
      if (this.total > this.height)
        told.push(`(the first ${number(this.height)} of ${number(this.total)}; all of them lie in ${this.path ?? "the run folder"})`);
      if (this.folded) told.push(`· ${plural(this.folded, "more column")} under Columns`);
      if (this.empty) told.push(`· ${plural(this.empty, "column")} without any value hidden at first`);
      const go = (step) => () => {
        this.page += step;
        this.draw();
        const again = this.foot.querySelector(step < 0 ? ".back" : ".on");
        (again.disabled ? this.foot.querySelector("button:not(:disabled)") : again)?.focus();
      };
      const size = make(
        "select",
        {
          "aria-label": "Rows per page",
          onchange: () => {
            this.size = Number(size.value);
            this.page = 0;
            this.draw();
            this.foot.querySelector("select").focus();
          },
        },
        ...SIZES.map((n) => make("option", { value: n, selected: n === this.size }, `${n} rows`)),
      );
      const steps =
        pages > 1
          ? [
              make("button", { type: "button", className: "back", disabled: this.page === 0, onclick: go(-1) }, "Previous"),
              make("span", {}, `${this.page + 1} / ${pages}`),
              make("button", { type: "button", className: "on", disabled: this.page === pages - 1, onclick: go(1) }, "Next"),
            ]
          : [];
      this.foot.replaceChildren(
        make("p", { className: "count" }, told.join(" ")),
        make("div", { className: "steps" }, ...(order.length > SIZES[0] ? [size] : []), ...steps),
      );
    }

    save() {
      const quote = (value) => {
        if (value === null || value === undefined) return "";
        const text = Array.isArray(value) ? JSON.stringify(value) : String(value);
        return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
      };
      const lines = [this.columns.map((c) => quote(c[0])).join(",")];
      for (const row of this.current) lines.push(this.values.map((values) => quote(values[row])).join(","));
      const blob = new Blob([lines.join("\r\n"), "\r\n"], { type: "text/csv;charset=utf-8" });
      const link = make("a", { href: URL.createObjectURL(blob), download: `${this.name}.csv` });
      document.body.append(link);
      link.click();
      link.remove();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      querist.say(`${plural(this.current.length, "row")} saved`);
    }

    // On paper a wide table becomes several blocks of columns, each with its key column.
    print() {
      const rows = this.current.slice(0, PRINT_ROWS);
      const keys = [...this.keyed].filter((c) => c >= 0).slice(0, 2);
      const width = (c) => {
        const longest = rows.reduce((most, r) => Math.max(most, shown(this.values[c][r]).length), 0);
        return Math.min(keys.includes(c) ? 34 : 30, Math.max(longest, Math.min(this.columns[c][0].length, 16))) + 2;
      };
      const used = keys.reduce((sum, c) => sum + width(c), 0);
      const blocks = [];
      let block = [];
      let left = PRINT_CHARS - used;
      this.columns.forEach((_, c) => {
        if (this.hidden.has(c) || keys.includes(c)) return;
        const wide = width(c);
        if (block.length && wide > left) {
          blocks.push(block);
          block = [];
          left = PRINT_CHARS - used;
        }
        block.push(c);
        left -= wide;
      });
      if (block.length || !blocks.length) blocks.push(block);
      this.printing = true; // paper sorts nothing, and browsers leave buttons out of repeated headers
      this.paper = make("div", { className: "paper" }, ...blocks.map((b) => this.grid([...keys, ...b], rows)));
      if (this.current.length > rows.length || this.total > this.height)
        this.paper.append(make("p", { className: "told" }, `${rows.length} of ${number(this.total)} rows printed; all of them lie in ${this.path ?? "the run folder"}.`));
      this.printing = false;
      this.root.append(this.paper);
    }
  }

  const tables = new Map();
  const open = (root) => {
    if (!tables.has(root)) tables.set(root, new Table(root));
    return tables.get(root);
  };
  const roots = [...document.querySelectorAll("[data-table]")];
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries)
        if (entry.isIntersecting) {
          seen.unobserve(entry.target);
          open(entry.target);
        }
    },
    { rootMargin: "300px" },
  );
  for (const root of roots) seen.observe(root);
  querist.number = number;
  querist.printTables = () => roots.forEach((root) => open(root).print());
  querist.unprintTables = () => document.querySelectorAll(".paper").forEach((node) => node.remove());
})();
