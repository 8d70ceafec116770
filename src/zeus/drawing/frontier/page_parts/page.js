"use strict";
(() => {
  const { points, maxPower, energyUnit } = JSON.parse(document.getElementById("data").textContent);
  const figure = document.querySelector("figure");
  const details = document.getElementById("details");
  const charts = [...figure.querySelectorAll(":scope > svg")];
  const marks = charts.map((chart) => {
    const found = [...chart.querySelectorAll(".mark")];
    return found.sort((a, b) => a.dataset.point - b.dataset.point);
  });

  // --- the cost, by the rules of ZeusCost -------------------------------------------------------

  const surelyLess = (a, b) =>
    b.value - a.value > Math.max(Math.hypot(a.doubt, b.doubt), 1e-12 * Math.abs(b.value));

  // Those of which no other surely has less.
  function least(candidates, measure) {
    const values = candidates.map(measure);
    const best = values.reduce((a, b) => (b.value < a.value ? b : a));
    return candidates.filter((_, index) => !surelyLess(best, values[index]));
  }

  function choose(eta) {
    const ofTime = (1 - eta) * maxPower;
    const time = (point) => ({ value: point.time, doubt: point.timeUncertainty });
    const energy = (point) => ({ value: point.energy, doubt: point.energyUncertainty });
    const cost = (point) => ({
      value: eta * point.energy + ofTime * point.time,
      doubt: Math.hypot(eta * point.energyUncertainty, ofTime * point.timeUncertainty),
    });
    const candidates = points.filter((point) => point.candidate);
    const lowest = Math.min(...candidates.map((point) => cost(point).value));
    const tied = least(candidates, cost).filter(
      (point) => cost(point).value - lowest <= 0.001 * Math.abs(lowest),
    );
    tied.sort((a, b) => a.order - b.order);
    const point = least(least(tied, time), energy)[0];
    return { point, value: cost(point).value, ties: tied.filter((other) => other !== point) };
  }

  // --- the slider -------------------------------------------------------------------------------

  const slider = document.getElementById("eta");
  const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });

  function update() {
    const eta = Number(slider.value);
    const { point, value, ties } = choose(eta);
    const chosen = String(points.indexOf(point));
    for (const item of document.querySelectorAll("figure > svg [data-point], #points tbody tr")) {
      item.classList.toggle("chosen", item.dataset.point === chosen);
      if (item.matches("tr")) item.ariaCurrent = item.dataset.point === chosen ? "true" : null;
    }
    charts.forEach((chart) => raise(chart, point.label));
    const cost = `${(value / energyUnit.size).toPrecision(4)} ${energyUnit.name}`;
    const tie = ties.length ? `, a tie with ${ties.map((other) => other.label).join(", ")}` : "";
    document.getElementById("choice").replaceChildren(
      element("strong", point.label),
      `: ${point.compared}. Cost ${cost}${tie}.`,
    );
    document.getElementById("eta-value").textContent = eta.toFixed(2);
    slider.setAttribute("aria-valuetext", `${eta.toFixed(2)}, chooses ${point.label}`);
  }

  // The chosen mark comes to the front, with a label if there was no room for one of its own.
  function raise(chart, text) {
    chart.querySelector(".floating")?.remove();
    for (const label of chart.querySelectorAll(".covered")) label.classList.remove("covered");
    const mark = chart.querySelector(".mark.chosen");
    if (!mark) return;  // too far off to be on the plot
    if (mark !== document.activeElement) chart.append(mark);
    if (chart.querySelector(".label.chosen")) return;
    const dot = mark.querySelector(".dot");
    const [x, y] = [Number(dot.getAttribute("cx")), Number(dot.getAttribute("cy"))];
    const floating = document.createElementNS("http://www.w3.org/2000/svg", "text");
    floating.textContent = text;
    const right = x > chart.viewBox.baseVal.width / 2;
    const look = { class: "floating", x: right ? x - 13 : x + 13, y: y - 8, "font-size": 12 };
    for (const [name, value] of Object.entries(look)) floating.setAttribute(name, value);
    if (right) floating.setAttribute("text-anchor", "end");
    chart.append(floating);
    const own = floating.getBBox();
    for (const label of chart.querySelectorAll(".label")) {
      const box = label.getBBox();
      const apart =
        box.x > own.x + own.width || own.x > box.x + box.width ||
        box.y > own.y + own.height || own.y > box.y + box.height;
      label.classList.toggle("covered", !apart);
    }
  }

  // --- details of a point: pointed at, touched, or reached by the arrow keys ---------------------

  function show(mark) {
    figure.querySelector(".shown")?.classList.remove("shown");
    details.hidden = !mark;
    if (!mark) return;
    mark.classList.add("shown");
    const point = points[mark.dataset.point];
    details.replaceChildren(
      element("strong", point.label),
      ...point.details.map((line) => element("span", line)),
    );
    const frame = figure.getBoundingClientRect();
    const dot = mark.querySelector(".dot").getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = details;
    const left = dot.x + dot.width / 2 - frame.x - width / 2;
    const above = dot.y - frame.y - height - 12;
    details.style.left = `${Math.max(0, Math.min(left, frame.width - width))}px`;
    details.style.top = `${above >= 0 ? above : dot.bottom - frame.y + 12}px`;
  }

  function nearest(index, event) {
    let [found, least] = [null, 28];
    for (const mark of marks[index]) {
      const dot = mark.querySelector(".dot").getBoundingClientRect();
      const [x, y] = [dot.x + dot.width / 2, dot.y + dot.height / 2];
      const away = Math.hypot(x - event.clientX, y - event.clientY);
      if (away < least) [found, least] = [mark, away];
    }
    return found;
  }

  charts.forEach((chart, index) => {
    marks[index][0].setAttribute("tabindex", "0");
    for (const name of ["pointermove", "pointerdown"]) {
      chart.addEventListener(name, (event) => show(nearest(index, event)));
    }
    chart.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") show(null);
    });
  });

  document.addEventListener("pointerdown", (event) => {
    if (!figure.contains(event.target)) show(null);
  });

  // Listened for on the figure: a listener for the focus would make the plot itself a stop.
  figure.addEventListener("focusin", (event) => show(event.target.closest(".mark")));
  figure.addEventListener("focusout", () => show(null));
  figure.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const mark = event.target.closest(".mark");
    const own = marks.find((group) => group.includes(mark));
    if (event.key === "Escape") show(null);
    if (!by || !own) return;
    event.preventDefault();
    const next = own[Math.max(0, Math.min(own.length - 1, own.indexOf(mark) + by))];
    mark.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });

  if (slider) {
    slider.addEventListener("input", update);
    update();
  }
})();
