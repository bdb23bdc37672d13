import { render } from "preact";
import { App } from "./app";
import { readAddress, takeToken } from "./source/address";
import { embeddedData, unpack } from "./source/report";
import { Page } from "./ui/Page";
import "uplot/dist/uPlot.min.css";
import "./ui/style.css";

const app = new App();

/** Shows what this page was opened for: its own data, a link's architecture, or the run behind a token. */
function begin(): void {
  const data = embeddedData(document);
  if (data !== null) return void app.showFile(unpack(data), "what was saved in this page", "report");
  const address = readAddress(location.href);
  if (address.link !== null && address.token === null) return void app.showLink(address.link);
  app.connect(new URL(".", location.href).href, takeToken(address, sessionStorage, history), address.file);
}

render(<Page app={app} />, document.getElementById("app")!);
begin();
// The same tab may be given another link; only the fragment changes then, and nothing is loaded.
addEventListener("hashchange", begin);
