// Browsers refuse workers to pages that are opened from the disk. There, this runs the script of a worker in a hidden frame instead, so that
// the search of the site works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.frame = frame;
      const inside = frame.contentWindow;
      // Inside, "postMessage" answers the page.
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      inside.importScripts = (...urls) => urls.reduce((done, url) => done.then(() => load(frame, url)), Promise.resolve());
      this.ready = load(frame, script);
    }
    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data: structuredClone(data) }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}

function load(frame, url) {
  return new Promise((resolve, reject) => {
    const script = frame.contentDocument.createElement("script");
    script.src = new URL(url, location.href).href;
    script.onload = resolve;
    script.onerror = reject;
    frame.contentDocument.body.append(script);
  });
}
