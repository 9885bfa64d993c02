"use strict";
// Small tables that stand in the page: a click on a header sorts their rows by data-value, or by text without one.
(() => {
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const first = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      const arrow = document.createElement("span");
      button.type = "button";
      arrow.className = "arrow";
      arrow.setAttribute("aria-hidden", "true");
      button.append(...head.childNodes, arrow);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const way = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
        for (const other of table.tHead.rows[0].cells) {
          other.setAttribute("aria-sort", "none");
          other.querySelector(".arrow").textContent = "";
        }
        head.setAttribute("aria-sort", way);
        arrow.textContent = { none: "", ascending: "▲", descending: "▼" }[way];
        const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
        const compare = (a, b) => {
          const [x, y] = [value(a), value(b)];
          if (x === "" || y === "") return (x === "") - (y === ""); // rows without a value stay last
          return (way === "descending" ? -1 : 1) * x.localeCompare(y, "en", { numeric: true });
        };
        const numbers = first.every((row) => value(row) === "" || !Number.isNaN(Number(value(row))));
        const byNumber = (a, b) => {
          const [x, y] = [value(a), value(b)];
          if (x === "" || y === "") return (x === "") - (y === "");
          return (way === "descending" ? -1 : 1) * (Number(x) - Number(y));
        };
        const rows = way === "none" ? first : first.toSorted(numbers ? byNumber : compare);
        body.append(...rows);
        querist.say(way === "none" ? "In the order of the page" : `Sorted by ${head.textContent}, ${way}`);
      });
    });
  }
})();
