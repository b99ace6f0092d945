// Sends the requests, in a worker for two reasons. Its timers keep their pace while the page is in
// the background. And a browser logs each 429 that a page receives as an error, but a refusal here
// is an answer like any other.

"use strict";

const PATIENCE = 10_000; // milliseconds until a request counts as unanswered
const MOST_IN_FLIGHT = 6; // per stream, so that a server that hangs is not flooded

let endpoint = "";
const clients = new Map(); // by name: the number of requests sent and in flight, and a timer

onmessage = ({ data }) => {
  if (data.kind === "setup") endpoint = data.endpoint;
  if (data.kind === "send") for (let i = 0; i < data.requests; i += 1) send(data.client, data.batch);
  if (data.kind === "stream") stream(data.client, data.rate);
};

function stream(name, rate) {
  const client = find(name);
  clearInterval(client.timer);
  if (rate === 0) return;
  client.timer = setInterval(() => {
    if (client.inFlight < MOST_IN_FLIGHT) send(name, null);
  }, 1000 / rate);
}

async function send(name, batch) {
  const client = find(name);
  const wasAlone = client.inFlight === 0;
  const number = (client.sent += 1);
  const start = performance.now();
  client.inFlight += 1;
  const answer = await request(name);
  client.inFlight -= 1;
  // Answers to requests that overlap may come in any order.
  const alone = wasAlone && client.sent === number;
  postMessage({ ...answer, client: name, batch, alone, took: performance.now() - start });
}

async function request(name) {
  try {
    const response = await fetch(endpoint, {
      headers: { "X-Demo-Client": name },
      cache: "no-store",
      signal: AbortSignal.timeout(PATIENCE),
    });
    const body = await response.json().catch(() => null);
    return {
      status: response.status,
      reason: response.statusText,
      headers: [...response.headers],
      wait: body?.retryAfterMs ?? null,
    };
  } catch {
    return { status: 0, reason: "", headers: [], wait: null };
  }
}

function find(name) {
  if (!clients.has(name)) clients.set(name, { sent: 0, inFlight: 0, timer: 0 });
  return clients.get(name);
}
