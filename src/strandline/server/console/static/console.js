// Shows a notice while a stream of live values is interrupted. The pages work without this script.
"use strict";

document.addEventListener("htmx:sseError", (event) => {
  event.target.closest(".live")?.classList.add("is-lost");
});
document.addEventListener("htmx:sseOpen", (event) => {
  event.target.closest(".live")?.classList.remove("is-lost");
});
