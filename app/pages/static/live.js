"use strict";
// The page of a test that runs: takes the server's frames, and goes on after a lost connection.
document.addEventListener("DOMContentLoaded", () => {
  const live = document.getElementById("live");
  if (!live) return;
  const lost = document.getElementById("lost");
  const answers = document.getElementById("answers");
  const mostRows = 60;

  function show({ step, html }) {
    const holder = document.createElement("div");
    holder.innerHTML = html;
    const row = holder.firstElementChild;
    const old = document.getElementById(`step-${step}`);
    if (old) old.replaceWith(row);
    else {
      row.classList.add("new");
      answers.prepend(row);
    }
    window.htmx.process(row);
  }
  function take(frame) {
    for (const [id, html] of Object.entries(frame.parts)) {
      const part = document.getElementById(id);
      part.innerHTML = html;
      window.sextant.localTimes(part);
    }
    document.getElementById("none-yet")?.remove();
    frame.rows.forEach(show);
    while (answers.children.length > mostRows) answers.lastElementChild.remove();
    if (frame.over || frame.state !== live.dataset.state) { // other buttons, or the report
      stream.close();
      window.location.reload();
    }
  }

  let stream, last = null;
  function listen() {
    const address = new URL(live.dataset.stream, window.location);
    if (last !== null) address.searchParams.set("after", last);
    stream = new EventSource(address);
    stream.addEventListener("open", () => { lost.hidden = true; });
    stream.addEventListener("live", (event) => {
      lost.hidden = true;
      last = event.lastEventId;
      take(JSON.parse(event.data));
    });
    stream.addEventListener("error", () => {
      lost.hidden = false;
      if (stream.readyState !== EventSource.CLOSED) return; // it tries again by itself
      // Refused with an answer: logged out, ended, or a proxy whose server is away.
      stream.close();
      setTimeout(() => fetch(window.location, { redirect: "manual" }).then((answer) => {
        if (answer.ok || answer.type === "opaqueredirect") window.location.reload();
        else listen();
      }).catch(listen), 2000);
    });
  }
  listen();
  window.addEventListener("pagehide", () => stream.close());
  window.addEventListener("pageshow", (event) => { if (event.persisted) window.location.reload(); });
});
