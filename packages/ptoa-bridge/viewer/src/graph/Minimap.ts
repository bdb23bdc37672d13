/** The whole drawing in a strip at its side, with the part that is on the screen; a drag there moves it. */
import { familyOf } from "../model/kinds";
import { familyColour } from "../ui/colours";
import { theme } from "../ui/theme";
import type { Camera, Size } from "./camera";
import type { Scene } from "./scene";

const [WIDTH, LEAST_WIDTH, MOST_HEIGHT] = [80, 28, 0.45];
/** A drawing of which at least this share is seen needs no map. */
const MOSTLY_SEEN = 0.7;

export class Minimap {
  private scale = { x: 1, y: 1 };
  private drawn: unknown[] = [];

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly frame: HTMLElement,
    /** Puts a point of the drawing into the middle of the screen. */
    centre: (x: number, y: number) => void,
  ) {
    const point = (event: PointerEvent): void => {
      if (event.buttons & 1) centre(event.offsetX / this.scale.x, event.offsetY / this.scale.y);
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      point(event);
    });
    canvas.addEventListener("pointermove", point);
  }

  /** Boxes are drawn again only when they, their colours or the room for them have changed. */
  show(scene: Scene, camera: Camera, screen: Size, tints: ReadonlyMap<string, string> | null): void {
    const share = (room: number, size: number): number => Math.min(1, room / (size * camera.zoom));
    const seen = share(screen.width, scene.width) * share(screen.height, scene.height);
    const room = this.canvas.parentElement!;
    room.hidden = seen > MOSTLY_SEEN || screen.height < 200;
    if (room.hidden) return;
    const colours = theme();
    const state = [scene, tints, screen.height, colours];
    if (state.some((part, i) => part !== this.drawn[i])) this.draw(scene, screen, tints);
    this.drawn = state;
    const { style } = this.frame;
    style.transform = `translate(${(-camera.x / camera.zoom) * this.scale.x}px, ${(-camera.y / camera.zoom) * this.scale.y}px)`;
    style.width = `${(screen.width / camera.zoom) * this.scale.x}px`;
    style.height = `${Math.max(3, (screen.height / camera.zoom) * this.scale.y)}px`;
  }

  private draw(scene: Scene, screen: Size, tints: ReadonlyMap<string, string> | null): void {
    const fit = Math.min(WIDTH / scene.width, (screen.height * MOST_HEIGHT) / scene.height);
    // A drawing like a thread is stretched sideways.
    const [width, height] = [Math.max(LEAST_WIDTH, scene.width * fit), scene.height * fit];
    this.scale = { x: width / scene.width, y: fit };
    const context = this.canvas.getContext("2d")!;
    const ratio = devicePixelRatio;
    [this.canvas.width, this.canvas.height] = [Math.ceil(width * ratio), Math.ceil(height * ratio)];
    [this.canvas.style.width, this.canvas.style.height] = [`${width}px`, `${height}px`];
    context.scale(this.scale.x * ratio, this.scale.y * ratio);
    const colours = theme();
    for (const { id, kind, open, x, y, width: wide, height: high } of scene.boxes) {
      context.fillStyle = (!open && tints?.get(id)) || (open ? colours["k-group"] : kind === "group" ? colours.faint : familyColour(colours, familyOf(kind)));
      context.fillRect(x, y, wide, high);
    }
  }
}
