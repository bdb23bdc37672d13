/** Base64 as the formats want it: one spelling per value, so that nothing hides in padding or stray characters. */
import { FormatError, type Stage } from "./errors";

/** Bytes of standard base64 with padding (RFC 4648, section 4). */
export function decodeBase64(text: string, what: string): Uint8Array<ArrayBuffer> {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const body = padding ? text.slice(0, -padding) : text;
  if (/[^A-Za-z0-9+/]/.test(body)) throw new FormatError("tensor", `${what} is not standard base64.`);
  if (text.length % 4 !== 0) throw new FormatError("tensor", `${what} is base64 of a wrong length (${text.length} characters).`);
  return bytesOf(body, what, "tensor");
}

/** Bytes of base64url, with or without padding (RFC 4648, section 5). */
export function decodeBase64Url(text: string, what: string): Uint8Array<ArrayBuffer> {
  const body = text.replace(/={1,2}$/, "");
  if (/[+/]/.test(body)) throw new FormatError("base64", `${what} uses "+" or "/"; a link uses "-" and "_".`);
  if (/[^A-Za-z0-9_-]/.test(body)) throw new FormatError("base64", `${what} holds a character that base64url does not have.`);
  if (body.length !== text.length && text.length % 4 !== 0) throw new FormatError("base64", `${what} has wrong padding.`);
  return bytesOf(body.replace(/-/g, "+").replace(/_/g, "/"), what, "base64");
}

/** Bytes as base64url without padding. */
export function encodeBase64Url(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function bytesOf(body: string, what: string, stage: Stage): Uint8Array<ArrayBuffer> {
  if (body.length % 4 === 1) throw new FormatError(stage, `${what} is cut short.`);
  const spare = (body.length * 6) % 8;
  const last = body.length ? "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".indexOf(body[body.length - 1]!) : 0;
  if (last & ((1 << spare) - 1)) throw new FormatError(stage, `${what} is base64 with stray bits at its end.`);
  const binary = atob(body);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
