/** The words the steps of a layout share: what goes in, and where everything is when it comes out. */

export type Point = readonly [x: number, y: number];

/** A child to place. Ports are distances from its left edge; a child without ports is met at its middle. */
export interface LevelNode {
  width: number;
  height: number;
  inPorts: readonly number[];
  outPorts: readonly number[];
}

/** The end of a wire that is a port on the group's own border. */
export const BORDER = -1;

/** A wire from child to child, or from or to the border. A port is an index, -1 for the child's middle. */
export interface LevelEdge {
  source: number;
  sourcePort: number;
  target: number;
  targetPort: number;
  /** How much it pulls its ends into one column. */
  weight: number;
}

export interface Padding {
  top: number;
  side: number;
  bottom: number;
}

export interface LevelInput {
  nodes: readonly LevelNode[];
  edges: readonly LevelEdge[];
  inCount: number;
  outCount: number;
  padding: Padding;
}

/** Where everything of the group is, from its top left corner. */
export interface Level {
  x: number[];
  y: number[];
  width: number;
  height: number;
  inPorts: number[];
  outPorts: number[];
  paths: Point[][];
}
