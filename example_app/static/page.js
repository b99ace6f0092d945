// The page: what the buttons do, and what the answers change on it.

import { Bucket } from "./bucket.js";
import { answerOf, showAnswer } from "./answer.js";
import { History, drawLane, topFor } from "./chart.js";
import { duration, pace, plural } from "./words.js";

const STEP = 250; // milliseconds between changes, if the user prefers little motion
const EASING = 70; // milliseconds in which most of a change becomes visible
const NO_HEADERS = "no rate headers: the limiter is failing open";
const AWAY = "no answer from the server";

const $ = (selector) => document.querySelector(selector);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const limit = limitOf(document);
const clients = new Map(["a", "b"].map((name) => [name, makeClient(name)]));
const batches = new Map(); // by number: the answers so far to the requests of one press
const sender = new Worker(document.body.dataset.sender);
let trouble = ""; // why the levels cannot be known now, if so

// Clients

function limitOf({ body }) {
  return { capacity: Number(body.dataset.capacity), rate: Number(body.dataset.rate) };
}

function makeClient(name) {
  return {
    name,
    title: `Client ${name.toUpperCase()}`,
    bucket: new Bucket(limit),
    history: new History(),
    shown: null, // the level on the screen, which follows the bucket's; null: none is shown
    isStreaming: false,
    rate: 4,
    streamed: { allowed: 0, refused: 0, other: 0 },
    choice: $(`.choice[data-client=${name}]`),
    lane: $(`.lane[data-client=${name}]`),
  };
}

function chosen() {
  return clients.get($("input[name=client]:checked").value);
}

// Requests

function send(requests) {
  const { name } = chosen();
  const batch = Math.max(0, ...batches.keys()) + 1;
  batches.set(batch, { requests, allowed: 0, refused: 0, other: 0 });
  sender.postMessage({ kind: "send", client: name, requests, batch });
}

function setStream(client, isStreaming) {
  client.isStreaming = isStreaming;
  sender.postMessage({
    kind: "stream",
    client: client.name,
    rate: isStreaming ? client.rate : 0,
  });
  showControls();
}

function toggleStream() {
  const client = chosen();
  setStream(client, !client.isStreaming);
  const { allowed, refused } = client.streamed;
  if (client.isStreaming) {
    client.streamed = { allowed: 0, refused: 0, other: 0 };
    say(sending(client));
  } else {
    say(`${client.title} has stopped: ${allowed} allowed, ${refused} refused.`);
  }
}

function changeRate() {
  const client = chosen();
  client.rate = Number($("#rate").value);
  if (client.isStreaming) setStream(client, true);
  showControls();
  say(client.isStreaming ? sending(client) : `A stream will send ${pace(client.rate)}.`);
}

function changeClient() {
  const client = chosen();
  showControls();
  say(client.isStreaming ? sending(client) : `The buttons send as ${client.title}.`);
}

function sending({ title, rate }) {
  return `${title} sends ${pace(rate)}.`;
}

// Answers

function receive({ data }) {
  const client = clients.get(data.client);
  const answer = answerOf(data);
  const now = performance.now();
  learn(client, answer, now);
  if (answer.verdict !== "other") client.history.add(now, answer.verdict === "allowed");
  showAnswer(answer, client.title, trouble);
  if (data.batch !== null) finish(client, answer, data.batch);
  else client.streamed[answer.verdict] += 1;
}

function learn({ bucket }, answer, now) {
  const before = trouble;
  trouble = troubleOf(answer);
  if (trouble !== before) say(trouble ? sentence(trouble) : "The limiter answers again.");
  if (trouble) {
    bucket.forget();
  } else if (answer.capacity !== null && answer.capacity !== limit.capacity) {
    readLimitAgain(); // the limit has changed since the page was loaded
  } else if (answer.verdict === "allowed") {
    bucket.allowed(now, answer.remaining, answer.alone);
  } else {
    bucket.refused(now, answer.wait, answer.alone);
  }
  if (before === AWAY && !trouble) readLimitAgain(); // its configuration may have changed
}

function troubleOf({ status, verdict, remaining }) {
  if (status === 0) return AWAY;
  if (verdict === "other") return `status ${status}: the request was neither allowed nor refused`;
  return remaining === null ? NO_HEADERS : "";
}

function finish(client, answer, number) {
  const batch = batches.get(number);
  batch[answer.verdict] += 1;
  const { requests, allowed, refused, other } = batch;
  if (allowed + refused + other < requests) return;
  batches.delete(number);
  if (trouble) say(`${client.title}: ${trouble}.`);
  else if (requests === 1) say(`${client.title}: ${outcomeOf(answer)}.`);
  else say(`${client.title}: ${allowed} allowed, ${refused} refused.`);
}

function outcomeOf({ verdict, remaining, wait }) {
  if (verdict === "allowed") return `allowed, ${plural(remaining, "token")} left`;
  return wait === null ? "refused" : `refused, the next token comes in ${duration(wait / 1000)}`;
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

let lastReading = -Infinity;

async function readLimitAgain() {
  const now = performance.now();
  if (now - lastReading < 5000) return;
  lastReading = now;
  const response = await fetch(location.href, { cache: "no-store" }).catch(() => null);
  if (!response?.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  Object.assign(limit, limitOf(page));
  $(".code").replaceChildren(...page.querySelector(".code").childNodes);
  showLimit();
}

// What is seen

function say(text) {
  put($("#status"), text);
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function attribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function showLimit() {
  put($("#refill"), pace(limit.rate));
  for (const { choice } of clients.values()) {
    put(choice.querySelector(".capacity"), String(limit.capacity));
    choice.querySelector(".vessel").setAttribute("aria-valuemax", limit.capacity);
    // More than twenty marks are too dense to count.
    const marks = limit.capacity <= 20 ? limit.capacity : 10;
    choice.querySelector(".marks").style.setProperty("--marks", marks);
  }
}

function showControls() {
  const client = chosen();
  put($("#stream"), client.isStreaming ? "Stop" : "Stream");
  $("#stream").classList.toggle("streaming", client.isStreaming);
  $("#rate").value = client.rate;
  $("#rate").setAttribute("aria-valuetext", pace(client.rate));
  put($("#rate-text"), pace(client.rate));
}

function showBucket(client, now, elapsed) {
  const { bucket, choice } = client;
  const level = bucket.level(now);
  const isKnown = bucket.isKnown && !trouble;
  client.shown = isKnown ? eased(client.shown ?? level, level, elapsed) : null;

  // Round down to tenths, so that the screen never shows a token before it is there.
  const tenths = Math.floor((client.shown ?? 0) * 10 + 1e-6);
  choice.style.setProperty("--filled", ((client.shown ?? 0) / limit.capacity).toFixed(4));
  choice.classList.toggle("unknown", !isKnown);
  choice.classList.toggle("refusing", isKnown && level < 1);
  put(choice.querySelector(".whole"), isKnown ? String(Math.floor(tenths / 10)) : "?");
  put(choice.querySelector(".part"), isKnown ? `.${tenths % 10}` : "");
  put(choice.querySelector(".note"), noteOf(client, level, now));
  const vessel = choice.querySelector(".vessel");
  const whole = isKnown ? Math.floor(level) : 0;
  attribute(vessel, "aria-valuenow", whole);
  attribute(vessel, "aria-valuetext", isKnown ? `${whole} of ${limit.capacity}` : "unknown");
}

function eased(shown, level, elapsed) {
  const part = calm.matches ? 1 : 1 - Math.exp(-elapsed / EASING);
  const next = shown + (level - shown) * part;
  return Math.abs(level - next) < 0.005 ? level : next;
}

function noteOf({ bucket, isStreaming, rate }, level, now) {
  const stream = isStreaming ? `sending ${rate}/s` : "";
  return [stream, stateOf(bucket, level, now)].filter(Boolean).join("\n");
}

function stateOf(bucket, level, now) {
  if (trouble) return "level unknown";
  if (!bucket.isKnown) return "unknown until the first answer";
  if (level >= limit.capacity) return "full";
  if (level < 1) return `a token in ${duration(bucket.secondsUntil(1, now))}`;
  return `full in ${duration(bucket.secondsUntil(limit.capacity, now))}`;
}

let top = topFor(0); // the end of the scale on the screen, for both lanes

function showChart(now, elapsed) {
  const highest = Math.max(...[...clients.values()].map(({ history }) => history.highest));
  const label = topFor(Math.max(highest, Math.min(limit.rate, 20)));
  top += (label - top) * (calm.matches ? 1 : 1 - Math.exp(-elapsed / EASING));
  const seconds = calm.matches ? Math.floor(now / 1000) : now / 1000;
  for (const { title, history, lane } of clients.values()) {
    history.forgetBefore(now);
    const canvas = lane.querySelector("canvas");
    drawLane(canvas, { history, seconds, top, label, rate: limit.rate });
    const [allowed, refused] = [history.total("allowed"), history.total("refused")];
    put(lane.querySelector(".allowed b"), String(allowed));
    put(lane.querySelector(".refused b"), String(refused));
    const summary = `${title}, last minute: ${allowed} allowed, ${refused} refused.`;
    if (canvas.ariaLabel !== summary) canvas.ariaLabel = summary;
  }
}

let last = performance.now();

function frame() {
  requestAnimationFrame(frame);
  const now = performance.now();
  const elapsed = now - last;
  if (calm.matches && elapsed < STEP) return;
  last = now;
  for (const client of clients.values()) showBucket(client, now, elapsed);
  showChart(now, elapsed);
}

// Begin

sender.onmessage = receive;
sender.postMessage({ kind: "setup", endpoint: new URL(document.body.dataset.endpoint, location).href });
for (const button of document.querySelectorAll("button[data-requests]")) {
  button.addEventListener("click", () => send(Number(button.dataset.requests)));
}
$("#stream").addEventListener("click", toggleStream);
$("#rate").addEventListener("input", changeRate);
$(".choices").addEventListener("change", changeClient);
showLimit();
showControls();
frame();
