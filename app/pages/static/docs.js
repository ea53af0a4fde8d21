"use strict";
// "Try it" of the API reference: sends a call with the key that was typed in, which is kept nowhere.
document.addEventListener("DOMContentLoaded", () => {
  const key = document.getElementById("key");
  document.getElementById("with")?.addEventListener("submit", (event) => event.preventDefault());
  for (const form of document.querySelectorAll("form[data-path]")) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      delete form.dataset.sent;
      const answer = form.querySelector("output");
      let path = form.dataset.path;
      const query = new URLSearchParams();
      const headers = {};
      for (const field of form.querySelectorAll("[data-in]")) {
        if (field.dataset.in === "path") {
          path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
        } else if (field.value !== "") {
          if (field.dataset.in === "query") query.append(field.name, field.value);
          else headers[field.name] = field.value;
        }
      }
      if (key && key.value) headers.Authorization = `Bearer ${key.value}`;
      const options = { method: form.dataset.method, headers, credentials: "omit" };
      const body = form.querySelector("textarea");
      if (body && body.value) {
        options.body = body.value;
        headers["Content-Type"] = form.dataset.type;
      }
      answer.textContent = "...";
      try {
        const got = await fetch(path + (query.size ? `?${query}` : ""), options);
        const text = await got.text();
        let shown = text;
        try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON */ }
        answer.textContent = `${got.status} ${got.statusText}\n${shown.slice(0, 100000)}`;
      } catch (error) {
        answer.textContent = String(error);
      }
    });
  }
});
