// An answer of the server: what it says about the bucket, and how the page shows it.

import { plural } from "./words.js";

const SHOWN = /^(x-ratelimit-|ratelimit|retry-after|cache-control|x-served-by)/;

// Read either style of headers: X-RateLimit-*, and RateLimit with RateLimit-Policy.
export function answerOf(data) {
  const headers = new Map(data.headers);
  const [limit, policy] = [headers.get("ratelimit"), headers.get("ratelimit-policy")];
  return {
    ...data,
    headers,
    verdict: verdictOf(data.status),
    remaining: number(headers.get("x-ratelimit-remaining") ?? limit?.match(/;\s*r=(\d+)/)?.[1]),
    capacity: number(headers.get("x-ratelimit-limit") ?? policy?.match(/;\s*q=(\d+)/)?.[1]),
  };
}

function verdictOf(status) {
  if (status === 429) return "refused";
  return status >= 200 && status < 300 ? "allowed" : "other";
}

function number(text) {
  return text === undefined ? null : Number(text);
}

export function showAnswer(answer, title, trouble) {
  const { status, reason, took } = answer;
  const find = (id) => document.getElementById(id);
  find("answer-status").textContent = status ? `${status} ${named(reason, status)}` : "No answer";
  find("answer-about").textContent = `${title}, ${Math.round(took)} ms`;
  find("headers").replaceChildren(...[...answer.headers].flatMap((header) => rows(header, answer)));
  find("trouble").hidden = !trouble;
  find("trouble").textContent = trouble;
}

// HTTP/2 and later send no reason phrase, and some servers send it in capitals.
function named(reason, status) {
  return { 200: "OK", 429: "Too Many Requests", 503: "Service Unavailable" }[status] ?? reason;
}

function rows([name, value], answer) {
  if (!SHOWN.test(name)) return [];
  const [term, text] = [document.createElement("dt"), document.createElement("dd")];
  term.textContent = spelled(name);
  text.textContent = value;
  const remark = remarkOn(name, value, answer);
  if (remark) {
    const small = document.createElement("small");
    small.textContent = remark;
    text.append("  ", small);
  }
  return [term, text];
}

// Browsers return the names of headers in lower case.
function spelled(name) {
  return name
    .replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase())
    .replace("Ratelimit", "RateLimit");
}

function remarkOn(name, value, { headers }) {
  if (name === "x-served-by") return "the worker’s process";
  if (name !== "x-ratelimit-reset") return "";
  const seconds = Number(value) - Date.parse(headers.get("date")) / 1000;
  return seconds > 0 ? `full within ${plural(seconds, "second")}` : "";
}
