import { describe, expect, it } from "vitest";
import { decodeLink, encodeLink } from "../src/formats/link";
import { buildScene } from "../src/graph/scene";
import { sceneToSvg } from "../src/graph/svg";
import { buildOutline } from "../src/model/outline";
import type { Theme } from "../src/ui/colours";
import { block, gpt, spec } from "./models";

const COLOURS = new Proxy({}, { get: () => "#123456" }) as Theme;
const width = (text: string): number => text.length * 6;
const svgOf = (model: Parameters<typeof buildOutline>[0], name = "Test"): string =>
  sceneToSvg(buildScene(buildOutline(model), new Set(["g0", "g1", "g2"]), { title: width, detail: width }, new Map()), name, COLOURS, new Map([["t0", "red"]]));

describe("the drawing as SVG", () => {
  it("has each visible block by its name, each wire, and the colour of a measure", () => {
    const svg = svgOf(gpt(2));
    for (const title of ["tokens", "transformer", "h.0", "h.1", "attn", "unembed"]) expect(svg).toContain(`>${title}<`);
    expect(svg.match(/fill="none"/g)!.length).toBeGreaterThan(8);
    expect(svg).toContain('fill="red"');
    expect(svg).not.toMatch(/NaN|undefined|Infinity/);
  });

  it.each(["<script>alert(1)</script>", "</text><image href=x onerror=alert(1)>", "a & b", "]]>", "\u0000\ud800"])("holds %j as text alone", (label) => {
    const svg = svgOf(spec([block("t0", "tokens", [], { label }), block("l0", "linear", ["t0"], { label: `${label} (${label})` })]), label);
    const tags = new Set([...svg.matchAll(/<\/?([^\s>]+)/g)].map((match) => match[1]));
    expect([...tags].sort()).toEqual(["?xml", "path", "rect", "svg", "text", "title"]);
    expect(svg).not.toMatch(/&(?!(amp|lt|gt|quot|apos);)|[\u0000-\u0008\ud800-\udfff]/);
  });
});

describe("a link", () => {
  const large = (blocks: number) => spec([...Array(blocks).keys()].map((i) => block(`l${i}`, "linear", i ? [`l${i - 1}`] : [], { params: { in: i, flops: i * 7919 + 13, paramCount: (i * 104729) % 65537 } })));

  it("keeps what only informs while it is short, and leaves it away after that", async () => {
    expect(await decodeLink(await encodeLink(large(10)))).toEqual(large(10));
    const { blocks } = await decodeLink(await encodeLink(large(4000)));
    expect(blocks[7]!.params).toEqual({ in: 7 });
  });

  it("is refused for a model that no reader would take", async () => {
    const heavy = spec([block("t0", "tokens", [], { label: "x".repeat(4 * 1024 * 1024) })]);
    await expect(encodeLink(heavy)).rejects.toThrow("too large for a link");
  });
});
