// Numbers in words.

const UNITS = [
  ["second", 1],
  ["minute", 60],
  ["hour", 3600],
  ["day", 86_400],
];

// 0.5 s, 12 s, 3 minutes, 11 days; never 0.0 s for a time that is not over
export function duration(seconds) {
  if (seconds < 10) return `${(Math.ceil(seconds * 10) / 10).toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const [unit, length] = UNITS.findLast(([, size]) => seconds >= 2 * size);
  return `${Math.round(seconds / length)} ${unit}s`;
}

// 2 a second, 0.5 a second, 5 an hour
export function pace(rate) {
  const [unit, length] = UNITS.find(([, size]) => rate * size >= 0.1) ?? UNITS.at(-1);
  return `${Number((rate * length).toPrecision(3))} ${unit === "hour" ? "an" : "a"} ${unit}`;
}

export function plural(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}
