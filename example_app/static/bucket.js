// The page's estimate of a client's bucket. It refills here between answers, and each answer
// corrects it. The server tells only whole tokens, so an estimate with the same whole tokens stays.

const JUST_UNDER_ONE = 0.999;

export class Bucket {
  constructor(limit) {
    this.limit = limit; // {capacity, rate}: tokens, tokens a second
    this.isKnown = false;
    this.tokens = limit.capacity;
    this.at = 0; // milliseconds
  }

  level(now) {
    const refilled = (this.limit.rate * Math.max(0, now - this.at)) / 1000;
    return Math.min(this.limit.capacity, this.tokens + refilled);
  }

  // An allowed request left this many whole tokens, and the same part of a token as before. Answers
  // to overlapping requests arrive in any order. Then the smallest one is the last.
  allowed(now, remaining, alone) {
    const level = this.level(now);
    if (alone) {
      this.set(now, Math.min(Math.max(level - 1, remaining), remaining + JUST_UNDER_ONE));
    } else {
      this.set(now, Math.min(level, remaining + (level % 1)));
    }
  }

  // A refused request can be afforded after `wait` milliseconds; null if the answer does not say.
  refused(now, wait, alone) {
    const exact = wait === null ? JUST_UNDER_ONE : 1 - (wait * this.limit.rate) / 1000;
    this.set(now, alone && wait !== null ? exact : Math.min(this.level(now), exact));
  }

  set(now, tokens) {
    this.tokens = Math.min(this.limit.capacity, Math.max(0, tokens));
    this.at = now;
    this.isKnown = true;
  }

  forget() {
    this.isKnown = false;
  }

  // The seconds until the bucket holds this many tokens.
  secondsUntil(tokens, now) {
    return Math.max(0, tokens - this.level(now)) / this.limit.rate;
  }
}
