// Shows the values of the second under the pointer, in every chart of its step.
"use strict";
for (const step of document.querySelectorAll("section")) {
  const charts = [...step.querySelectorAll("figure")];
  const show = (second) => {
    for (const chart of charts) {
      for (const on of chart.querySelectorAll("g.on")) on.classList.remove("on");
      const group = second ? chart.querySelector(`g[data-second="${second}"]`) : null;
      if (group) group.classList.add("on");
      chart.querySelector("output").textContent =
        group ? `second ${second}: ${group.dataset.text}` : "";
    }
  };
  for (const chart of charts) {
    const svg = chart.querySelector("svg");
    const width = svg.viewBox.baseVal.width;
    const move = (event) => {
      const box = svg.getBoundingClientRect();
      show(Math.floor(((event.clientX - box.left) / box.width) * width) + 1);
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
    svg.addEventListener("pointerleave", () => show(0));
  }
}
