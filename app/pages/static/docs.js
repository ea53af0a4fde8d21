"use strict";
// The reference of the API, of which every call can be tried: the key that is typed in stays here.
document.addEventListener("DOMContentLoaded", () => {
  SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#reference",
    deepLinking: true,
    docExpansion: "none",
    validatorUrl: null,
    withCredentials: false,
  });
});
