/** The drawn graph as an SVG file, written from the scene; every text in it is escaped. */
import { familyOf } from "../model/kinds";
import type { Theme } from "../ui/theme";
import type { Point } from "../layout/words";
import { BADGE_HEIGHT, type Scene, type SceneBox, type SceneWire } from "./scene";

const MARGIN = 16;
const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;" };
/** What XML cannot hold at all, not even escaped. */
const FORBIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

const escaped = (text: string): string => text.replace(FORBIDDEN, "\ufffd").replace(/[&<>"']/g, (character) => ESCAPES[character]!);
const round = (value: number): string => String(Math.round(value * 10) / 10);

type Attributes = Record<string, string | number>;

const element = (name: string, attributes: Attributes, content = ""): string => {
  const written = Object.entries(attributes).map(([key, value]) => ` ${key}="${typeof value === "number" ? round(value) : escaped(value)}"`);
  return `<${name}${written.join("")}>${content}</${name}>`;
};

export function sceneToSvg(scene: Scene, name: string, colours: Theme, tints: ReadonlyMap<string, string> | null): string {
  const [width, height] = [scene.width + 2 * MARGIN, scene.height + 2 * MARGIN];
  const frames = scene.boxes.filter((box) => box.open);
  const parts = [
    element("title", {}, escaped(name)),
    element("rect", { x: -MARGIN, y: -MARGIN, width, height, fill: colours.panel }),
    ...frames.map((box) => frame(box, colours)),
    ...scene.wires.map((wire) => path(wire, colours)),
    ...scene.boxes.map((box) => (box.open ? titleOf(box, colours) : boxOf(box, colours, tints?.get(box.id)))),
  ];
  const root = { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: [-MARGIN, -MARGIN, width, height].map(round).join(" "), "font-family": "system-ui, sans-serif", "font-size": "12" };
  return `<?xml version="1.0" encoding="UTF-8"?>\n${element("svg", root, `\n${parts.join("\n")}\n`)}\n`;
}

const frame = ({ x, y, width, height }: SceneBox, colours: Theme): string =>
  element("rect", { x, y, width, height, rx: 8, fill: colours["k-group"], stroke: colours.line });

function titleOf({ x, y, title, detail }: SceneBox, colours: Theme): string {
  const soft = detail && element("tspan", { fill: colours.soft, "font-size": "11", dx: 8 }, escaped(detail));
  return element("text", { x: x + 12, y: y + 19, fill: colours.ink }, escaped(title) + soft);
}

function boxOf({ x, y, width, height, kind, title, detail, badge }: SceneBox, colours: Theme, tint: string | undefined): string {
  const [middle, centre] = [x + width / 2, y + (height - (badge ? BADGE_HEIGHT : 0)) / 2];
  const text = (said: string, top: number, fill: string, size: string): string =>
    element("text", { x: middle, y: top, fill, "text-anchor": "middle", "font-size": size }, escaped(said));
  return [
    element("rect", { x, y, width, height, rx: 6, fill: colours[`k-${familyOf(kind)}`], stroke: colours.line }),
    tint && element("rect", { x, y, width: 6, height, fill: tint }),
    text(title, detail ? centre - 3 : centre + 4, colours.ink, "12"),
    detail && text(detail, centre + 12, colours.soft, "11"),
    badge && text(badge, y + height - 6, colours.soft, "11"),
  ].join("");
}

function path({ points, residual }: SceneWire, colours: Theme): string {
  const stroke = residual ? colours["curve-3"] : colours.faint;
  const [x, y] = points.at(-1)!;
  const head = `M${round(x - 3)} ${round(y - 5.5)}h6L${round(x)} ${round(y)}z`;
  return element("path", { d: courseOf(points), fill: "none", stroke, "stroke-width": residual ? 1.6 : 1.2 }) + element("path", { d: head, fill: stroke });
}

/** The same bends as on the screen. */
const courseOf = (points: readonly Point[]): string =>
  points.map(([x, y], i) => {
    const before = points[i - 1];
    if (!before) return `M${round(x)} ${round(y)}`;
    if (Math.abs(before[0] - x) < 0.5 || Math.abs(before[1] - y) < 1) return `L${round(x)} ${round(y)}`;
    const middle = (before[1] + y) / 2;
    return `C${[before[0], middle, x, middle, x, y].map(round).join(" ")}`;
  }).join("");
