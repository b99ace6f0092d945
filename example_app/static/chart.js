// Bars for the last minute, one per second: allowed requests above the line, refused ones below.

const SECONDS = 60;
const LEAST_TOP = 4; // requests a second at the end of the scale
const LABELS = 28; // pixels at the left, for the numbers

export class History {
  constructor() {
    this.seconds = new Map(); // by whole second: how many were allowed and refused
  }

  add(now, allowed) {
    const second = Math.floor(now / 1000);
    if (!this.seconds.has(second)) this.seconds.set(second, { allowed: 0, refused: 0 });
    this.seconds.get(second)[allowed ? "allowed" : "refused"] += 1;
  }

  forgetBefore(now) {
    for (const second of this.seconds.keys()) {
      if (second <= Math.floor(now / 1000) - SECONDS) this.seconds.delete(second);
    }
  }

  total(what) {
    return [...this.seconds.values()].reduce((sum, counts) => sum + counts[what], 0);
  }

  get highest() {
    return Math.max(0, ...[...this.seconds.values()].flatMap((c) => [c.allowed, c.refused]));
  }
}

// The end of a scale that fits this many requests a second: 4, 5, 10, 15, 20, ...
export function topFor(highest) {
  return highest <= LEAST_TOP ? LEAST_TOP : Math.ceil(highest / 5) * 5;
}

export function drawLane(canvas, { history, seconds, top, label, rate }) {
  const { context, width, height } = prepared(canvas);
  const colours = coloursOf(canvas);
  const slot = (width - LABELS) / SECONDS;
  const middle = Math.round(height / 2);
  const unit = (middle - 8) / top; // pixels a request

  drawScale(context, { width, middle, unit, label, colours });
  for (const [second, { allowed, refused }] of history.seconds) {
    const x = Math.round(width - slot * (1 + seconds - second));
    const bar = Math.max(2, Math.floor(slot) - 1);
    if (x < LABELS) continue;
    context.fillStyle = colours.accent;
    context.fillRect(x, middle - allowed * unit, bar, allowed * unit);
    context.fillStyle = colours.refused;
    context.fillRect(x, middle + 1, bar, refused * unit);
  }
  drawRefill(context, { width, y: middle - rate * unit, colours });
}

function prepared(canvas) {
  const ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) {
    [canvas.width, canvas.height] = pixels;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

function coloursOf(element) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    accent: colour("accent"),
    refused: colour("refused"),
    line: colour("line"),
    mark: colour("mark"),
    quiet: colour("quiet"),
    font: `12px ${colour("sans")}`,
  };
}

function drawScale(context, { width, middle, unit, label, colours }) {
  context.font = colours.font;
  context.textBaseline = "middle";
  context.fillStyle = colours.quiet;
  for (const [value, y] of [
    [label, middle - label * unit],
    [0, middle],
    [label, middle + label * unit],
  ]) {
    context.fillStyle = colours.quiet;
    context.fillText(String(value), 0, y);
    context.fillStyle = value ? colours.line : colours.mark;
    context.fillRect(LABELS, Math.round(y), width - LABELS, 1);
  }
}

function drawRefill(context, { width, y, colours }) {
  if (y < 0) return;
  context.strokeStyle = colours.quiet;
  context.setLineDash([4, 4]);
  context.beginPath();
  context.moveTo(LABELS, Math.round(y) + 0.5);
  context.lineTo(width, Math.round(y) + 0.5);
  context.stroke();
  context.setLineDash([]);
}
