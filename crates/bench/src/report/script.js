// Shows the values of the second under the pointer, in every chart of its step and in the chart of
// the whole run; opens the fold that a link leads to.
"use strict";
const texts = (svg) => (svg.texts ??= svg.dataset.texts.split("|"));

const mark = (svg, x) => {
  let line = svg.querySelector(".cursor");
  if (!line) {
    line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.classList.add("cursor");
    svg.append(line);
  }
  line.setAttribute("d", x === null ? "" : `M${x} 0V100`);
};

const follow = (svg, moved, left) => {
  const move = (event) => {
    const box = svg.getBoundingClientRect();
    moved((event.clientX - box.left) / box.width);
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", left);
};

for (const step of document.querySelectorAll("details.step")) {
  const charts = [...step.querySelectorAll("figure")];
  const show = (second) => {
    for (const chart of charts) {
      const svg = chart.querySelector("svg");
      const text = texts(svg)[second - 1];
      mark(svg, text === undefined ? null : second - 0.5);
      chart.querySelector("output").textContent =
        text === undefined ? "" : `second ${second}: ${text}`;
    }
  };
  for (const chart of charts) {
    const svg = chart.querySelector("svg");
    const width = svg.viewBox.baseVal.width;
    follow(svg, (share) => show(Math.floor(share * width) + 1), () => show(0));
  }
}

const overview = document.querySelector(".overview");
if (overview) {
  const drawings = [...overview.querySelectorAll("svg")];
  let before = 0;
  const bands = [...overview.querySelectorAll(".bands a")].map((a) => {
    const [left, width] = [parseFloat(a.style.left) / 100, parseFloat(a.style.width) / 100];
    const band = { name: a.dataset.band, seconds: +a.dataset.length, left, width, before };
    before += band.seconds;
    return band;
  });
  const output = overview.querySelector("output");
  const hint = output.textContent;
  const show = (share) => {
    const band = bands.findLast((band) => band.left <= share);
    if (!band) return hide();
    const second = Math.min(
      Math.floor(((share - band.left) / band.width) * band.seconds), band.seconds - 1);
    const found = drawings.map((svg) => texts(svg)[band.before + second]).filter((text) => text);
    for (const svg of drawings) mark(svg, share * 1000);
    output.textContent = `${band.name}, second ${second + 1}: ${found.join("; ")}`;
  };
  const hide = () => {
    for (const svg of drawings) mark(svg, null);
    output.textContent = hint;
  };
  for (const svg of drawings) follow(svg, show, hide);
}

const unfold = (hash) => {
  const target = document.getElementById(hash.slice(1));
  if (target?.tagName === "DETAILS") target.open = true;
};
for (const link of document.querySelectorAll('a[href^="#step-"]')) {
  link.addEventListener("click", () => unfold(link.hash));
}
addEventListener("hashchange", () => unfold(location.hash));
unfold(location.hash);
