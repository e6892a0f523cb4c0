// A browser lets a page that comes from a disk start no worker and fetch no file. There the search gets what it needs
// as scripts, and works in the page: this stands in for the worker that search/main.js starts.
if (location.protocol === "file:") {
  window.Worker = class {
    postMessage(message) {
      if (message.query) {
        this.onmessage({ data: { results: search(message.query) } });
        return;
      }
      window.postMessage = (answer) => this.onmessage({ data: answer });
      const wanted = ["lunr.js", "search_index.js", "worker.js"];
      const next = () => {
        if (wanted.length === 0) {
          data = searchIndex;
          onScriptsLoaded();
          return;
        }
        const script = document.createElement("script");
        script.src = base_url + "/search/" + wanted.shift();
        script.onload = next;
        document.head.append(script);
      };
      next();
    }
  };
}
