"use strict";
(() => {
  // --- times in the local time zone -------------------------------------------------------------

  const two = (number) => String(number).padStart(2, "0");

  function localize(root) {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.valueOf())) continue;
      const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
      const text = `${day} ${two(at.getHours())}:${two(at.getMinutes())}`;
      if ("ago" in element.dataset) element.title = text;
      else [element.textContent, element.title] = [text, element.dateTime];
    }
  }

  // --- refreshing the parts that changed, while the page is visible -----------------------------

  let plain = new Map(); // HTML of each part before localize

  function remember(root) {
    plain = new Map([...root.querySelectorAll("[id]")].map((part) => [part.id, part.outerHTML]));
  }

  function update(fresh) {
    const main = document.getElementById("main");
    const outermost = (part) => !part.parentElement.closest("main [id]");
    const parts = [...fresh.querySelectorAll("[id]")].filter(outermost);
    for (const part of parts) {
      const old = document.getElementById(part.id);
      // Unchanged parts are kept, and with them selection, focus and expanded details.
      if (!old || plain.get(part.id) === part.outerHTML || old.contains(document.activeElement)) {
        continue;
      }
      const copy = document.importNode(part, true);
      for (const opened of old.querySelectorAll("details[open][id]")) {
        const same = copy.querySelector(`#${CSS.escape(opened.id)}`);
        if (same) same.open = true;
      }
      old.replaceWith(copy);
      localize(copy);
    }
    remember(fresh);
    if (fresh.dataset.refresh) main.dataset.refresh = fresh.dataset.refresh;
    else delete main.dataset.refresh;
  }

  async function refresh() {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const text = await answer.text();
      const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
      if (fresh) update(fresh);
    } catch {
      // The server is unreachable; the next refresh tries again.
    }
  }

  function soon() {
    const seconds = Number(document.getElementById("main").dataset.refresh);
    if (!seconds) return;
    setTimeout(async () => {
      if (!document.hidden) await refresh();
      soon();
    }, 1000 * seconds);
  }

  remember(document.getElementById("main"));
  localize(document);
  soon();

  // --- values of charts: under the pointer, a finger, or by the arrow keys -----------------------

  const near = 36; // pixels within which a place of a chart is found
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);
  let lit = null;

  const chartOf = (target) => target.closest?.("main svg[role='img']") ?? null;

  function placesOf(chart) {
    // A browser would show the titles as well, and much later.
    for (const title of chart.querySelectorAll("title")) {
      title.parentNode.dataset.tip = title.textContent;
      title.remove();
    }
    return [...chart.querySelectorAll("[data-tip]")];
  }

  function center(place) {
    const box = place.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  }

  function hide() {
    lit?.classList.remove("lit");
    lit = null;
    tip.hidden = true;
  }

  function light(place) {
    if (place === lit) return;
    hide();
    if (!place) return;
    lit = place;
    place.classList.add("lit");
    tip.textContent = place.dataset.tip;
    tip.hidden = false;
    follow();
  }

  function follow() {
    if (!lit) return;
    const [x, y] = center(lit);
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(x - tip.offsetWidth / 2, room))}px`;
    const above = y - tip.offsetHeight - 14;
    tip.style.top = `${above > 4 ? above : y + 16}px`;
  }

  function point(event) {
    const chart = chartOf(event.target);
    if (!chart) return hide();
    const over = event.target.closest("[data-tip]");
    if (over && event.target.tagName === "rect") return light(over); // a bar is as large as it is
    let best = null; // of places at the same distance, the one drawn last
    let least = near;
    for (const place of placesOf(chart)) {
      const [x, y] = center(place);
      const distance = Math.hypot(event.clientX - x, event.clientY - y);
      if (distance <= least) [best, least] = [place, distance];
    }
    light(best);
  }

  function step(event) {
    if (event.key === "Escape") return hide();
    const chart = chartOf(event.target);
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!chart || !by) return;
    const places = placesOf(chart)
      .map((place) => [place, ...center(place)])
      .sort((one, other) => one[1] - other[1] || one[2] - other[2])
      .map(([place]) => place);
    if (!places.length) return;
    event.preventDefault();
    const at = places.indexOf(lit);
    const next = at < 0 ? (by > 0 ? 0 : places.length - 1) : at + by;
    light(places[Math.max(0, Math.min(next, places.length - 1))]);
  }

  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("keydown", step);
  document.addEventListener("focusout", hide);
  // Not hidden: a browser tells of the scrolling to a focused chart after the first key.
  document.addEventListener("scroll", follow, { passive: true });

  // --- sign-in link: browsers do not send the fragment after the # ------------------------------

  const form = document.getElementById("sign-in");
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (form && code) {
    history.replaceState(null, "", location.pathname + location.search);
    form.elements.code.value = code;
    form.submit();
  }
})();
