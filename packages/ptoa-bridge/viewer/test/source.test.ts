import { describe, expect, it, vi } from "vitest";
import { readAddress, takeToken } from "../src/source/address";
import { FrameSplitter, readHistory } from "../src/source/history";
import { statusOf } from "../src/status";

describe("the address", () => {
  it.each([
    ["a token in the fragment", "http://127.0.0.1:5000/#token=ab-c_1", { token: "ab-c_1", link: null, file: null, clean: "http://127.0.0.1:5000/" }],
    ["a token in the query", "http://127.0.0.1:5000/?token=abc&x=1", { token: "abc", link: null, file: null, clean: "http://127.0.0.1:5000/?x=1" }],
    ["a file's name", "http://127.0.0.1:5000/#token=abc&file=my%20run.pta", { token: "abc", link: null, file: "my run.pta", clean: "http://127.0.0.1:5000/#file=my+run.pta" }],
    ["an architecture", "http://127.0.0.1:5000/#s=AbC-_&x=1", { token: null, link: "#s=AbC-_&x=1", file: null, clean: "http://127.0.0.1:5000/#s=AbC-_&x=1" }],
    ["nothing", "http://localhost:5000/", { token: null, link: null, file: null, clean: "http://localhost:5000/" }],
    ["an empty token", "http://localhost:5000/#token=", { token: null, link: null, file: null, clean: "http://localhost:5000/" }],
  ])("with %s", (_name, href, address) => {
    expect(readAddress(href)).toEqual(address);
  });

  it("gives up its token to the tab's storage, from where a reload takes it", () => {
    const items = new Map<string, string>();
    const storage = { getItem: (key: string) => items.get(key) ?? null, setItem: (key: string, value: string) => void items.set(key, value) } as unknown as Storage;
    const history = { replaceState: vi.fn() } as unknown as History;
    expect(takeToken(readAddress("http://127.0.0.1:1/#token=abc"), storage, history)).toBe("abc");
    expect(history.replaceState).toHaveBeenCalledExactlyOnceWith(null, "", "http://127.0.0.1:1/");
    expect(takeToken(readAddress("http://127.0.0.1:1/"), storage, history)).toBe("abc");
  });
});

describe("the state", () => {
  it("says that a file is a file, and calls nothing live that is none", () => {
    const facts = { hasModel: true, frames: 5 };
    expect(statusOf({ kind: "bridge", state: "live", file: "a.pta" }, facts)).toMatchObject({ state: "file", tone: "calm", text: expect.stringContaining("File a.pta") });
    expect(statusOf({ kind: "bridge", state: "live" }, facts)).toMatchObject({ state: "live", tone: "good" });
  });
});

describe("the history", () => {
  const frames = [{ step: 0, blocks: [{ id: 'a"}{', act: { hist: [1, 2] } }] }, { step: 1, note: "\\" }, { step: 2, blocks: [] }];
  const text = JSON.stringify({ frames });

  it.each([1, 2, 3, 7, 64, 1000])("is cut into its frames when it comes in pieces of %i characters", (size) => {
    const splitter = new FrameSplitter();
    const found: string[] = [];
    for (let at = 0; at < text.length; at += size) found.push(...splitter.push(text.slice(at, at + size)));
    expect(found.map((one) => JSON.parse(one))).toEqual(frames);
  });

  it("may be empty", () => {
    expect(new FrameSplitter().push('{"frames":[]}')).toEqual([]);
  });

  it("is read as bytes, whose pieces may cut a character", async () => {
    const bytes = new TextEncoder().encode('{"frames":[{"name":"é"}]}');
    const stream = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
        controller.close();
      },
    });
    const found: string[] = [];
    for await (const batch of readHistory(stream)) found.push(...batch);
    expect(found).toEqual(['{"name":"é"}']);
  });
});

describe("the state", () => {
  it.each([
    ["connecting", {}, "connecting"], ["no-token", {}, "no-token"], ["wrong-token", {}, "wrong-token"], ["gone", { frames: 3 }, "gone"], ["ended", { frames: 3 }, "ended"],
    ["live", {}, "no-model"], ["live", { hasModel: true }, "no-frames"], ["live", { hasModel: true, frames: 1 }, "live"],
  ] as const)("of a bridge that is %s with %j is %s, in a sentence of its own", (state, facts, name) => {
    const status = statusOf({ kind: "bridge", state }, { hasModel: false, frames: 0, ...facts });
    expect(status.state).toBe(name);
    expect(status.text).toMatch(/^[A-Z].*[.…]$/);
  });

  it("says what is wrong with a file", () => {
    expect(statusOf({ kind: "file", name: "x.pta", state: "failed", problem: "It is empty." }, { hasModel: false, frames: 0 }).text).toBe("It is empty.");
  });
});
