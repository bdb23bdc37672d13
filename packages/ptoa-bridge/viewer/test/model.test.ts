import { describe, expect, it } from "vitest";
import { buildOutline, hintOf, membersOf } from "../src/model/outline";
import { search } from "../src/model/search";
import { fit, fitEnd, plain } from "../src/model/text";
import { firstOpen, neighbours, openAround, shownAs, visibleItems, visibleView, withOpen } from "../src/model/view";
import { block, gpt, spec } from "./models";

describe("the outline", () => {
  const outline = buildOutline(gpt(4));

  it("gathers three and more equal layers in a row under one item", () => {
    const list = outline.items.get("g1")!;
    expect(list.children).toHaveLength(1);
    const repeat = outline.items.get(list.children[0]!)!;
    expect(repeat).toMatchObject({ title: "Block × 4", detail: "h.0 – h.3", block: null });
    expect(membersOf(outline, repeat)).toEqual(["g2", "g5", "g8", "g11"]);
    expect(outline.items.get(repeat.children[1]!)).toMatchObject({ title: "3 more", detail: "h.1 – h.3", gives: true });
  });

  it("shows two equal layers one by one", () => {
    expect(buildOutline(gpt(2)).items.get("g1")!.children).toEqual(["g2", "g5"]);
  });

  it("keeps layers of another size apart", () => {
    const other = gpt(4);
    other.blocks.find(({ id }) => id === "l4")!.params = { out: 7 };
    expect(buildOutline(other).items.get("g1")!.children).toEqual(["g2", "g5", "g8", "g11"]);
  });

  it("leaves the path of the group around out of a title", () => {
    expect(outline.items.get("g3")!.title).toBe("attn");
    expect(outline.items.get("g2")!.title).toBe("h.0");
    const functional = buildOutline(spec([block("g0", "group", [], { label: "enc.0 (Layer)" }), block("m0", "mlp", [], { label: "enc.0 mlp", group: "g0" })]));
    expect(functional.items.get("m0")!.title).toBe("mlp");
  });

  it("puts siblings into the order in which they run", () => {
    const mixed = spec([block("g0", "group", [], { label: "late (Late)" }), block("i0", "input", []), block("l0", "linear", ["i0"]), block("l1", "linear", ["l0"], { group: "g0" })]);
    expect(buildOutline(mixed).roots).toEqual(["i0", "l0", "g0"]);
  });

  it("marks the stream past a sublayer as residual, and neither input of a sum of two embeddings", () => {
    const residual = outline.edges.filter((edge) => edge.residual);
    expect(residual).toContainEqual({ source: "e0", target: "r0", residual: true, aside: false });
    const sum = buildOutline(spec([block("t0", "tokens", []), block("e0", "embedding", ["t0"]), block("p0", "posenc", ["t0"]), block("r0", "add", ["e0", "p0"])]));
    expect(sum.edges.filter((edge) => edge.residual)).toEqual([]);
  });

  it("takes a chain of 20,000 groups, one in another", () => {
    const groups = Array.from({ length: 20_000 }, (_, i) => block(`g${i}`, "group", [], { label: `g${i} (G)`, ...(i > 0 && { group: `g${i - 1}` }) }));
    const deep = buildOutline(spec([...groups, block("i0", "input", [], { group: "g19999" })]));
    expect(shownAs(deep, new Set(), "i0")).toBe("g0");
  });
});

describe("the hint of an item", () => {
  const hint = (rest: Parameters<typeof block>[3]): string => hintOf(buildOutline(spec([block("l0", "linear", [], rest)])).items.get("l0")!);

  it("says name, kind, shape and parameters, as far as they are known", () => {
    expect(hint({ label: "h.0.up", params: { in: 4, out: 8, shape: [2, 3, 8], paramCount: 12345 } })).toBe("h.0.up\n4 → 8\nlinear · 2 × 3 × 8 · 12,345 parameters");
    expect(hint({})).toBe("linear\nlinear");
  });

  it("is short and without control characters, whatever a stranger's spec says", () => {
    const hostile = hint({ label: `${"x".repeat(5000)}\u202e\u0007`, params: { shape: ["\n<b>", { a: 1 }], paramCount: "many" } });
    expect(hostile.length).toBeLessThan(700);
    expect(hostile.split("\n").length).toBeLessThanOrEqual(3);
    expect(hostile).not.toMatch(/[\u0007\u202e]/);
  });
});

describe("the view", () => {
  const outline = buildOutline(gpt(12));

  it("begins with outer groups open and repeated layers folded", () => {
    const open = firstOpen(outline);
    expect(open).toEqual(new Set(["g0", "g1"]));
    expect(visibleView(outline, open).items.length).toBeLessThan(10);
  });

  it("ends wires at the folded group that stands for a block, each pair once", () => {
    const { edges } = visibleView(outline, new Set());
    expect(edges).toEqual([
      { source: "t0", target: "g0", residual: false },
      { source: "g0", target: "u0", residual: false },
      { source: "u0", target: "x0", residual: false },
    ]);
  });

  describe("of equal layers", () => {
    const around = firstOpen(outline);
    const repeat = outline.items.get("g1")!.children[0]!;
    const inside = (open: ReadonlySet<string>): string[] => visibleItems(outline, open).filter(({ parent }) => parent === repeat).map(({ item }) => item.title);
    const one = withOpen(outline, around, repeat, true);
    const all = withOpen(outline, around, repeat, true, true);

    it("opens into the first and one box for the rest, or into each", () => {
      expect(inside(around)).toEqual([]);
      expect(inside(one)).toEqual(["h.0", "11 more"]);
      expect(inside(all)).toEqual([...Array(12).keys()].map((i) => `h.${i}`));
      expect(inside(withOpen(outline, one, outline.items.get(repeat)!.children[1]!, true))).toEqual(inside(all));
    });

    it("begins with the first again once it was folded", () => {
      const folded = withOpen(outline, all, repeat, false);
      expect(inside(folded)).toEqual([]);
      expect(inside(withOpen(outline, folded, repeat, true))).toEqual(["h.0", "11 more"]);
    });

    it("draws wires of the rest at its box, and its box as their group once they are shown", () => {
      const rest = outline.items.get(repeat)!.children[1]!;
      expect(visibleView(outline, one).edges).toContainEqual({ source: "g2", target: rest, residual: false });
      expect(shownAs(outline, one, "a7")).toBe(rest);
      expect(shownAs(outline, all, rest)).toBe(repeat);
      expect(visibleView(outline, all).edges.some(({ source, target }) => source === rest || target === rest)).toBe(false);
    });
  });

  it("opens what is around a block so that it shows itself", () => {
    const open = openAround(outline, new Set(), "a7");
    expect(shownAs(outline, open, "a7")).toBe("a7");
    expect(shownAs(outline, new Set(), "a7")).toBe("g0");
  });
});

describe("a tensor that many blocks read", () => {
  const masked = (readers: number) => {
    const layers = [...Array(readers).keys()].map((i) => block(`a${i}`, "attention", [i ? `a${i - 1}` : "t0", "i0"], { group: "g0" }));
    return buildOutline(spec([block("g0", "group", [], { label: "layers (Layers)" }), block("t0", "tokens", []), block("i0", "input", [], { label: "mask" }), ...layers]));
  };

  it("is a badge on its readers, and the nearest input stays a wire", () => {
    const { edges, badges } = visibleView(masked(7), new Set(["g0"]));
    expect([...badges.keys()]).toEqual(["a0", "a1", "a2", "a3", "a4", "a5", "a6"].filter((id) => badges.has(id)));
    expect(badges.get("a6")).toEqual(["i0"]);
    expect(edges).toContainEqual({ source: "a5", target: "a6", residual: false });
    expect(edges).not.toContainEqual(expect.objectContaining({ source: "i0", target: "a6" }));
  });

  it("is a wire for a handful of readers, and to the folded group that holds them all", () => {
    expect(visibleView(masked(5), new Set(["g0"])).badges.size).toBe(0);
    const folded = visibleView(masked(7), new Set());
    expect(folded.badges.size).toBe(0);
    expect(folded.edges).toContainEqual({ source: "i0", target: "g0", residual: false });
  });
});

describe("the neighbours", () => {
  const outline = buildOutline(gpt(12));

  it("of a block are what it reads and what reads it", () => {
    expect(neighbours(outline, "r0")).toEqual({ inputs: ["e0", "l1"], outputs: ["n1", "r1"] });
  });

  it("of a group are those outside it, each once", () => {
    expect(neighbours(outline, "g5")).toEqual({ inputs: ["r1"], outputs: ["n4", "r4"] });
  });
});

describe("search", () => {
  const outline = buildOutline(gpt(12));
  const ids = (query: string, limit = 100): string[] => search(outline, query, limit).items.map(({ id }) => id);

  it.each([
    ["a name", "attn", "g3"],
    ["a kind", "unembed", "u0"],
    ["a path in any case", "transformer.H.7.mlp", "g25"],
    ["an id", "x0", "x0"],
  ])("finds a block by %s", (_name, query, id) => {
    expect(ids(query)[0]).toBe(id);
  });

  it("wants every word", () => {
    expect(ids("h.3 attn")).toEqual(["g12"]);
    expect(ids("h.3 nowhere")).toEqual([]);
  });

  it("finds nothing for nothing, and tells how many there are beyond the limit", () => {
    expect(ids("  ")).toEqual([]);
    expect(search(outline, "linear", 5)).toMatchObject({ total: 48, items: { length: 5 } });
  });

  it("puts a name that is just so before one that only has it inside", () => {
    const two = buildOutline(spec([block("l0", "linear", [], { label: "embed" }), block("l1", "linear", ["l0"], { label: "bed" })]));
    expect(search(two, "bed", 5).items.map(({ id }) => id)).toEqual(["l1", "l0"]);
  });
});

describe("a stranger's text", () => {
  it.each([
    ["a bidirectional override", "\u202egnp.exe", "\\u202egnp.exe"],
    ["a zero-width space", "a\u200bb", "a\\u200bb"],
    ["a new line", "a\nb", "a\\u000ab"],
    ["a lone surrogate", "a\ud800b", "a\\ud800b"],
    ["markup", "<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"],
    ["Hebrew", "שלום", "שלום"],
  ])("shows %s as text", (_name, text, shown) => {
    expect(plain(text)).toBe(shown);
  });

  it("is bounded", () => {
    expect(plain("x".repeat(10_000), 50)).toBe("x".repeat(49) + "…");
  });

  it("is cut to a width, keeping as much as fits", () => {
    expect(fit("abcdef", 4, (text) => text.length)).toBe("abc…");
    expect(fit("abcd", 4, (text) => text.length)).toBe("abcd");
    expect(fitEnd("abcdef", 4, (text) => text.length)).toBe("…def");
  });
});
