/**
 * Layout of one group: its direct children in rows, wires between them and to the ports on its border.
 *
 * A layered drawing (Sugiyama, Tagawa and Toda, 1981): rank by longest path, order the rows by medians, put straight
 * runs into columns, then draw the wires. Each step is a module of its own.
 */
import { alignColumns } from "./columns";
import { orderRows } from "./order";
import { rankNodes } from "./rank";
import { drawWires } from "./route";
import { buildRows } from "./rows";
import type { Level, LevelInput } from "./words";

export function layoutLevel(input: LevelInput): Level {
  const rows = buildRows(input, rankNodes(input.nodes.length, input.edges));
  orderRows(rows.rows);
  alignColumns(rows);
  return drawWires(input, rows);
}
