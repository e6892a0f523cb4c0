// Shows a notice while a stream of live values is interrupted, and keeps a double click from sending a form twice.
// The pages work without this script.
"use strict";

document.addEventListener("htmx:sseError", (event) => {
  event.target.closest(".live")?.classList.add("is-lost");
});
document.addEventListener("htmx:sseOpen", (event) => {
  event.target.closest(".live")?.classList.remove("is-lost");
});
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || form.hasAttribute("hx-post")) return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "true";
});
window.addEventListener("pageshow", () => {
  document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent);
});
