"use strict";
// Figures: drawn by plotly.js when they come into view, all of them before printing, and again when the theme changes.
(() => {
  const PAPER = 680; // pixels between the margins of A4
  const config = {
    responsive: true,
    displaylogo: false,
    showTips: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
  };
  const drawn = new Map();

  const merge = (base, own) => {
    const result = { ...base };
    for (const [name, value] of Object.entries(own ?? {}))
      result[name] = value && typeof value === "object" && !Array.isArray(value) ? merge(base[name] ?? {}, value) : value;
    return result;
  };

  const dress = (layout, width, height) => {
    const [ink, muted, rule, paper] = ["ink", "muted", "rule", "paper"].map((name) => querist.colour(name));
    const family = getComputedStyle(document.body).fontFamily;
    const axis = {
      gridcolor: rule, linecolor: rule, zerolinecolor: rule, tickcolor: rule,
      automargin: true, tickfont: { color: muted }, title: { font: { color: muted, size: 12 }, standoff: 8 },
    };
    const base = {
      font: { family, size: 12, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 52, r: 12, t: 14, b: 44 },
      hovermode: "closest",
      hoverlabel: { bgcolor: paper, bordercolor: rule, font: { family, color: ink }, namelength: -1, align: "left" },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 0, yanchor: "bottom", yref: "container", font: { color: ink } },
      showlegend: true,
      xaxis: {},
      yaxis: {},
    };
    const result = merge(base, layout);
    for (const name of Object.keys(result)) if (/^[xy]axis\d*$/.test(name)) result[name] = merge(axis, result[name]);
    if (Array.isArray(result.annotations) && result.annotations.length) result.margin = { ...result.margin, t: 34 };
    for (const note of result.annotations ?? []) note.font = { color: ink, ...note.font };
    const button = { bgcolor: paper, bordercolor: rule, font: { color: ink } };
    result.sliders = (result.sliders ?? []).map((own) =>
      merge({ ...button, activebgcolor: rule, tickcolor: muted, currentvalue: { font: { color: ink } } }, own));
    result.updatemenus = (result.updatemenus ?? []).map((own) => merge(button, own));
    result.height = height;
    if (width) result.width = width;
    else result.autosize = true;
    return result;
  };

  const paint = (canvas, width) => {
    const { data, layout, frames } = JSON.parse(document.getElementById(`figure-${canvas.dataset.figure}`).textContent);
    const { ink, muted } = { ink: querist.colour("ink"), muted: querist.colour("muted") };
    for (const trace of data)
      if (trace.colorbar) trace.colorbar = merge({ tickfont: { color: muted }, title: { font: { color: ink } } }, trace.colorbar);
    if (data.length === 1 && layout.showlegend === undefined) layout.showlegend = false;
    const height = Number(canvas.dataset.height);
    const own = { ...config, toImageButtonOptions: { filename: canvas.dataset.name, format: "svg" } };
    try {
      Plotly.react(canvas, { data, layout: dress(layout, width, height), config: own, ...(frames && { frames }) });
    } catch (error) {
      canvas.textContent = `This figure could not be drawn: ${error.message}`;
    }
    drawn.set(canvas, true);
  };

  const canvases = [...document.querySelectorAll(".canvas")];
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries)
        if (entry.isIntersecting && entry.target.clientWidth) {
          seen.unobserve(entry.target);
          paint(entry.target);
        }
    },
    { rootMargin: "400px" },
  );
  for (const canvas of canvases) seen.observe(canvas);
  querist.listeners.push(() => [...drawn.keys()].forEach((canvas) => paint(canvas)));
  querist.printFigures = () => {
    for (const canvas of canvases) {
      seen.unobserve(canvas);
      paint(canvas, PAPER);
    }
  };
  querist.unprintFigures = () => canvases.forEach((canvas) => paint(canvas));
})();
