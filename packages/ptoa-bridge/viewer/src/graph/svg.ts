/** The drawn graph as an SVG file: the scene is painted on a surface that writes elements; every text is escaped. */
import { FONT, type Theme } from "../ui/colours";
import { drawPicture, wirePaths, type Surface } from "./draw";
import type { Scene } from "./scene";

const MARGIN = 16;
const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;" };
/** What XML cannot hold at all, not even escaped. */
const FORBIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
/** From the middle of a line of text to its base, over the size of its letters. */
const BASE = 0.35;
const ANCHORS: Record<string, string> = { center: "middle" };

const escaped = (text: string): string => text.replace(FORBIDDEN, "\ufffd").replace(/[&<>"']/g, (character) => ESCAPES[character]!);
const round = (value: number): string => String(Math.round(value * 10) / 10);

type Attributes = Record<string, unknown>;

const element = (name: string, attributes: Attributes, content = ""): string => {
  const written = Object.entries(attributes).map(([key, value]) => ` ${key}="${typeof value === "number" ? round(value) : escaped(String(value))}"`);
  return `<${name}${written.join("")}>${content}</${name}>`;
};

export function sceneToSvg(scene: Scene, name: string, colours: Theme, tints: ReadonlyMap<string, string> | null): string {
  const [width, height] = [scene.width + 2 * MARGIN, scene.height + 2 * MARGIN];
  const surface = new SvgSurface();
  const picture = { scene, wires: wirePaths(scene, () => new SvgPath()), camera: { zoom: 1, x: 0, y: 0 }, screen: scene };
  drawPicture(surface, { ...picture, colours, selected: null, hovered: null, tints });
  const parts = [
    element("title", {}, escaped(name)),
    element("rect", { x: -MARGIN, y: -MARGIN, width, height, fill: colours.panel }),
    ...surface.parts,
  ];
  const root = { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: [-MARGIN, -MARGIN, width, height].map(round).join(" "), "font-family": FONT };
  return `<?xml version="1.0" encoding="UTF-8"?>\n${element("svg", root, `\n${parts.join("\n")}\n`)}\n`;
}

/** Writes what a path is made of. */
class SvgPath {
  d = "";

  moveTo(x: number, y: number): void {
    this.write("M", x, y);
  }

  lineTo(x: number, y: number): void {
    this.write("L", x, y);
  }

  bezierCurveTo(...points: number[]): void {
    this.write("C", ...points);
  }

  closePath(): void {
    this.d += "z";
  }

  roundRect(x: number, y: number, width: number, height: number, radii: number | number[] = 0): void {
    const [nw, ne, se, sw] = (typeof radii === "number" ? Array(4).fill(radii) : radii) as number[];
    const corners = [[ne, x + width - ne!, y, x + width, y + ne!], [se, x + width, y + height - se!, x + width - se!, y + height], [sw, x + sw!, y + height, x, y + height - sw!], [nw, x, y + nw!, x + nw!, y]] as const;
    this.write("M", x + nw!, y);
    for (const [radius, fromX, fromY, toX, toY] of corners) {
      this.write("L", fromX, fromY);
      if (radius) this.write("A", radius, radius, 0, 0, 1, toX, toY);
    }
    this.closePath();
  }

  private write(command: string, ...values: number[]): void {
    this.d += command + values.map(round).join(" ");
  }
}

class SvgSurface extends SvgPath implements Surface {
  readonly parts: string[] = [];
  fillStyle: Surface["fillStyle"] = "";
  strokeStyle: Surface["strokeStyle"] = "";
  lineWidth = 1;
  lineJoin: CanvasLineJoin = "miter";
  font = "";
  textAlign: CanvasTextAlign = "left";
  textBaseline: CanvasTextBaseline = "middle";

  beginPath(): void {
    this.d = "";
  }

  fill(): void {
    this.add("path", { d: this.d, fill: this.fillStyle });
  }

  stroke(course: SvgPath = this): void {
    this.add("path", { d: course.d, ...this.pen() });
  }

  fillText(text: string, x: number, y: number): void {
    this.addText(text, x, y, { fill: this.fillStyle });
  }

  strokeText(text: string, x: number, y: number): void {
    this.addText(text, x, y, { ...this.pen(), "stroke-linejoin": this.lineJoin });
  }

  private pen(): Attributes {
    return { fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth };
  }

  private addText(text: string, x: number, y: number, paint: Attributes): void {
    const [, weight, size] = /^(?:(\d+) )?(\d+)px/.exec(this.font)!;
    const look = { "font-size": size, "font-weight": weight ?? "normal", "text-anchor": ANCHORS[this.textAlign] ?? "start" };
    if (text) this.add("text", { x, y: y + Number(size) * BASE, ...look, ...paint }, escaped(text));
  }

  private add(name: string, attributes: Attributes, content?: string): void {
    this.parts.push(element(name, attributes, content));
  }
}
