/** Which part of the drawing is seen: screen = drawing × zoom + offset. */

export interface Camera {
  zoom: number;
  x: number;
  y: number;
}

export interface Size {
  width: number;
  height: number;
}

const MIN_ZOOM = 0.02;
const MAX_ZOOM = 3;
const MARGIN = 16;
/** Height of the buttons over the top of the drawing. */
const TOOLS = 46;
/** Below this names cannot be read: a tall drawing begins at its top instead of shrinking to a thread. */
const READABLE = 0.6;

const limited = (zoom: number): number => Math.max(MIN_ZOOM, Math.min(MAX_ZOOM, zoom));

/** The whole drawing in the middle of the screen, clear of the buttons. */
export function fitAll(drawing: Size, screen: Size): Camera {
  const zoom = limited(Math.min((screen.width - 2 * MARGIN) / drawing.width, (screen.height - TOOLS - MARGIN) / drawing.height, 1));
  return { zoom, x: (screen.width - drawing.width * zoom) / 2, y: Math.max(TOOLS, (screen.height - drawing.height * zoom) / 2) };
}

/** The whole drawing where it can be read so, else its top. */
export function fitFirst(drawing: Size, screen: Size): Camera {
  const all = fitAll(drawing, screen);
  if (all.zoom >= READABLE) return all;
  const zoom = limited(Math.max(READABLE, Math.min(1, (screen.width - 2 * MARGIN) / drawing.width)));
  return { zoom, x: (screen.width - drawing.width * zoom) / 2, y: TOOLS };
}

/** The same camera closer or farther, with the point of the screen held in place. */
export function zoomAt(camera: Camera, factor: number, screenX: number, screenY: number): Camera {
  const zoom = limited(camera.zoom * factor);
  const ratio = zoom / camera.zoom;
  return { zoom, x: screenX - (screenX - camera.x) * ratio, y: screenY - (screenY - camera.y) * ratio };
}

export const panBy = (camera: Camera, dx: number, dy: number): Camera => ({ ...camera, x: camera.x + dx, y: camera.y + dy });

/** The same camera moved so that a box is wholly on the screen; unchanged when it is. */
export function reveal(camera: Camera, box: { x: number; y: number } & Size, screen: Size): Camera {
  const shift = (start: number, length: number, offset: number, room: number): number => {
    const from = start * camera.zoom + offset;
    const to = from + length * camera.zoom;
    if (from >= MARGIN && to <= room - MARGIN) return 0;
    return to - from > room - 2 * MARGIN ? MARGIN - from : room / 2 - (from + to) / 2;
  };
  return panBy(camera, shift(box.x, box.width, camera.x, screen.width), shift(box.y, box.height, camera.y, screen.height));
}
