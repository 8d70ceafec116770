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

  // --- sign-in link: browsers do not send the fragment after the # ------------------------------

  const form = document.getElementById("sign-in");
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (form && code) {
    history.replaceState(null, "", location.pathname + location.search);
    form.elements.code.value = code;
    form.submit();
  }
})();
