import { createHash } from "node:crypto";
import { defineConfig, type Plugin, type Rollup } from "vite";

const DATA_MARK = "<!--PTOA-DATA-->";

const sha256 = (text: string): string => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

/** The page's script as it may stand inside a script element. */
const inlineScript = (code: string): string => code.replace(/<\/(script)/gi, "<\\/$1").replace(/<!--/g, "\\x3c!--");

/**
 * The same page as one file, report.html, for data that is saved with it.
 *
 * Its policy allows exactly this script and this style, by their hashes, and no request at all. The data go into a block
 * that never runs, so that the hashes hold for every report and whoever fills it needs no JavaScript.
 */
function reportFile(): Plugin {
  return {
    name: "ptoa-report",
    apply: "build",
    enforce: "post",
    generateBundle(_options, bundle) {
      const files = Object.values(bundle);
      const chunks = files.filter((file): file is Rollup.OutputChunk => file.type === "chunk");
      if (chunks.length !== 1) this.error(`report.html needs one script, got ${chunks.map((chunk) => chunk.fileName).join(", ")}`);
      const styles = files.filter((file): file is Rollup.OutputAsset => file.type === "asset" && file.fileName.endsWith(".css"));
      const style = styles.map((file) => String(file.source)).join("\n");
      this.emitFile({ type: "asset", fileName: "report.html", source: reportPage(inlineScript(chunks[0]!.code), style) });
    },
  };
}

function reportPage(script: string, style: string): string {
  const policy = [
    "default-src 'none'", `script-src ${sha256(script)}`, `style-src ${sha256(style)}`, "img-src data: blob:",
    "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'",
  ].join("; ");
  return [
    '<!doctype html><html lang="en"><head><meta charset="utf-8">',
    `<meta http-equiv="Content-Security-Policy" content="${policy}">`,
    '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">',
    '<title>Model and training</title><link rel="icon" href="data:,">',
    `<style>${style}</style></head><body><div id="app"></div>`,
    `<script type="application/octet-stream" id="ptoa-data">${DATA_MARK}</script>`,
    `<script type="module">${script}</script></body></html>\n`,
  ].join("");
}

export default defineConfig({
  base: "./",
  plugins: [reportFile()],
  build: {
    outDir: "../src/ptoa_bridge/static",
    emptyOutDir: true,
    target: ["es2022", "safari16.4"],
    sourcemap: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    license: { fileName: "assets/third-party-licenses.md" },
  },
});
