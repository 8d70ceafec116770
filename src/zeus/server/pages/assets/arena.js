"use strict";
(() => {
  // --- both answers of a round, as they arrive --------------------------------------------------

  const duel = document.getElementById("duel");
  const progress = document.getElementById("progress");
  const sides = ["left", "right"];
  const patience = 60; // attempts to reach the server again, one per second

  function grow(side, text) {
    if (!text) return;
    const pane = document.getElementById(`${side}-answer`);
    const atEnd = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 40;
    pane.append(text);
    if (atEnd) pane.scrollTop = pane.scrollHeight;
  }

  async function* lines(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts;
    }
  }

  // A stream begins at the beginning: after an interruption, what is shown already is skipped.
  async function attempt(shown) {
    const answer = await fetch(duel.dataset.stream, { cache: "no-store" });
    if (!answer.ok) return "ended";
    let number = 0;
    for await (const line of lines(answer.body)) {
      const frame = JSON.parse(line);
      number += 1;
      if (frame.state) return frame.state;
      if (number <= shown.frames) continue;
      shown.frames = number;
      for (const side of sides) grow(side, frame[side]);
    }
    return "";
  }

  async function follow() {
    const shown = { frames: 0 };
    for (let tries = 0; tries < patience; tries += 1) {
      try {
        const state = await attempt(shown);
        // After an interruption the server's page has the whole text, the stream perhaps not.
        if (state) return state === "answered" && !tries ? answered() : location.reload();
      } catch {
        // The connection broke; the round goes on, and everything can be read again.
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
    location.reload();
  }

  function answered() {
    duel.removeAttribute("aria-busy");
    progress.textContent = "Both answers are complete. Vote now.";
    document.querySelector("h1").textContent = "Which answer is better?";
    const form = document.getElementById("vote");
    for (const button of form.querySelectorAll("button")) button.disabled = false;
    form.hidden = false;
  }

  if (duel?.dataset.stream) follow();

  // --- by keyboard: numbers press the buttons of this step --------------------------------------

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (typing?.form?.id === "ask" && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      typing.form.requestSubmit();
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (!/^[1-9]$/.test(event.key)) return;
    document.querySelector(`main [data-key="${event.key}"]:not(:disabled)`)?.click();
  });

  // A second click while the first is on its way would ask twice.
  for (const form of document.querySelectorAll("main form[method='post']")) {
    let sent = false;
    form.addEventListener("submit", (event) => {
      if (sent) event.preventDefault();
      sent = true;
    });
  }
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload(); // from the browser's memory: the round has gone on
  });
})();
