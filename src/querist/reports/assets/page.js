"use strict";
// Folding, the way to what a link names, the filter of long lists of findings, and what paper needs.
(() => {
  const sections = [...document.querySelectorAll("details.section")];
  const all = (on) => () => sections.forEach((section) => (section.open = on));
  document.getElementById("unfold")?.addEventListener("click", all(true));
  document.getElementById("fold")?.addEventListener("click", all(false));
  document.getElementById("print")?.addEventListener("click", () => print());

  const reveal = () => {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (!target) return;
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link && link.getAttribute("href") === location.hash) reveal();
  });
  reveal();

  const links = new Map([...document.querySelectorAll(".toc a")].map((link) => [link.getAttribute("href").slice(1), link]));
  const visible = new Set();
  const watch = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) entry.isIntersecting ? visible.add(entry.target) : visible.delete(entry.target);
      const order = [...links.keys()].map((id) => document.getElementById(id)).filter((node) => visible.has(node));
      for (const link of links.values()) link.removeAttribute("aria-current");
      if (order.length) links.get(order.at(-1).contains(order[0]) ? order[0].id : (order.find((n) => n.classList.contains("level3")) ?? order[0]).id).setAttribute("aria-current", "true");
    },
    { rootMargin: "-10% 0px -70% 0px" },
  );
  for (const id of links.keys()) {
    const node = document.getElementById(id);
    if (node) watch.observe(node);
  }
  const toc = document.querySelector(".toc > details");
  if (toc && matchMedia("(max-width: 1099px)").matches) toc.open = false;

  for (const group of document.querySelectorAll(".group")) {
    if (Number(group.dataset.rows) <= 12) continue;
    const rows = [...group.querySelectorAll("tbody tr")];
    const search = document.createElement("input");
    const count = document.createElement("span");
    Object.assign(search, { type: "search", placeholder: `Filter ${rows.length} findings`, className: "find" });
    search.setAttribute("aria-label", `Filter ${rows.length} findings: ${group.querySelector(".ask")?.textContent ?? ""}`);
    count.className = "unit";
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let kept = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        kept += !row.hidden;
      }
      const rest = group.querySelector("details.rest");
      if (rest && words.length) rest.open = true;
      count.textContent = words.length ? `${kept} of ${rows.length}` : "";
    });
    const line = document.createElement("p");
    line.className = "finder";
    line.append(search, count);
    group.querySelector("table").before(line);
  }

  const command = document.querySelector(".command");
  if (command && navigator.clipboard) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.querySelector("code").textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(command.querySelector("code"));
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    command.append(button);
  }

  let before = null;
  addEventListener("beforeprint", () => {
    if (before) return;
    const root = document.documentElement;
    before = { theme: root.dataset.theme, closed: [...document.querySelectorAll("main details:not([open]):not(.chooser)")] };
    root.dataset.theme = "light";
    for (const node of before.closed) node.open = true;
    querist.printTables?.();
    querist.printFigures?.();
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    if (before.theme) document.documentElement.dataset.theme = before.theme;
    else delete document.documentElement.dataset.theme;
    for (const node of before.closed) node.open = false;
    before = null;
    querist.unprintTables?.();
    querist.unprintFigures?.();
  });
})();
