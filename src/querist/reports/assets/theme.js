"use strict";
// Light and dark: the system decides until the reader does; the choice is remembered where the browser allows it.
window.querist = {
  listeners: [],
  dark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  },
  colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  },
  say(text) {
    document.getElementById("said").textContent = text;
  },
};
(() => {
  const root = document.documentElement;
  const key = "querist-theme";
  try {
    const kept = localStorage.getItem(key);
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch {
    // A page opened from a file may have no storage.
  }
  const button = document.getElementById("theme");
  const told = () => {
    const name = document.getElementById("theme-name");
    if (name) name.textContent = querist.dark() ? "Light" : "Dark";
    for (const listener of querist.listeners) listener();
  };
  for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;
  button?.addEventListener("click", () => {
    root.dataset.theme = querist.dark() ? "light" : "dark";
    try {
      localStorage.setItem(key, root.dataset.theme);
    } catch {
      // The choice then lasts as long as the page.
    }
    told();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", told);
  told();
})();
