// Shows the broker's own OpenAPI document, and has what is tried sent to this broker. A token
// that is given for trying stays in the memory of this page.
interface Viewer extends HTMLElement { loadSpec: (document: unknown) => Promise<void> }

const viewer = document.querySelector("openapi-explorer") as Viewer;
const [answer] = await Promise.all([fetch("/openapi.json", { credentials: "omit" }), customElements.whenDefined("openapi-explorer")]);
const document_ = await answer.json() as { servers?: { url: string }[] };
document_.servers = [{ url: location.origin }];
await viewer.loadSpec(document_);

export {};
