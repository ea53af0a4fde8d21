"use strict";
(function () {
  function localTimes(root) {
    const inZone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
    for (const time of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (!isNaN(moment)) {
        time.title = time.dateTime;
        time.textContent = inZone.format(moment);
      }
    }
  }
  function choices(root) {
    // What only one choice needs is shown with that one alone; without a script all is shown.
    for (const part of root.querySelectorAll("[data-when]")) {
      const [name, value] = part.dataset.when.split("=");
      const control = part.closest("form").elements[name];
      const show = () => { part.hidden = control.value !== value; };
      control.addEventListener("change", show);
      show();
    }
  }
  function pairs() {
    const ticks = [...document.querySelectorAll("input[form=pair]")];
    const limit = () => {
      const enough = ticks.filter((one) => one.checked).length >= 2;
      for (const one of ticks) one.disabled = enough && !one.checked;
    };
    for (const one of ticks) one.addEventListener("change", limit);
    window.addEventListener("pageshow", limit);
  }
  function confirmations(event) {
    const asked = event.target.dataset && event.target.dataset.confirm;
    if (asked && !window.confirm(asked)) event.preventDefault();
    // A second click is not a second test.
    else if (event.target.dataset.sent) event.preventDefault();
    else if (event.target.method === "post" && !event.defaultPrevented) event.target.dataset.sent = "1";
  }
  function turn(event) {
    const way = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
    const isTyping = event.target.closest && event.target.closest("input, select, textarea, pre");
    const link = way && !isTyping && document.querySelector(`a[rel=${way}]`);
    if (link && !(event.altKey || event.ctrlKey || event.metaKey || event.shiftKey)) link.click();
  }
  document.addEventListener("keydown", turn);
  document.addEventListener("submit", confirmations);
  document.addEventListener("DOMContentLoaded", () => {
    localTimes(document);
    choices(document);
    pairs();
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.forms) delete form.dataset.sent;
  });
  document.addEventListener("htmx:afterSwap", (event) => localTimes(event.detail.target));
  window.sextant = { localTimes };
})();
