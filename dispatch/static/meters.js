// What the page measures itself: loudness, the first sound after a text, and WebRTC's own figures.

const SOUND_RMS = 0.008;
const POLL_MS = 15;

export class SoundMeter {
  // onLevel(0..1) on every poll; onSound() at the first sound after `await_()`.
  constructor({ onLevel, onSound }) {
    this.onLevel = onLevel;
    this.onSound = onSound;
    this.context = null;
    this.source = null;
    this.analyser = null;
    this.waiting = false;
    this.rms = 0;
    this.timer = setInterval(() => this.poll(), POLL_MS);
  }

  // Call from a click or a key: only then may a browser start an audio context.
  async start() {
    this.context ??= new AudioContext({ latencyHint: "interactive" });
    if (this.context.state === "suspended") await this.context.resume().catch(() => {});
  }

  listen(stream) {
    const [track] = stream.getAudioTracks();
    if (!this.context || !track || this.source?.mediaStream === stream) return;
    this.source?.disconnect();
    this.analyser ??= new AnalyserNode(this.context, { fftSize: 512, smoothingTimeConstant: 0 });
    this.samples ??= new Float32Array(this.analyser.fftSize);
    this.source = this.context.createMediaStreamSource(stream);
    this.source.connect(this.analyser);
  }

  get running() {
    return this.source !== null && this.context?.state === "running";
  }

  // Returns whether the first sound from now on can be told: not while something is heard already.
  expect() {
    this.waiting = this.running && this.rms < SOUND_RMS;
    return this.waiting;
  }

  poll() {
    if (!this.running) return;
    this.analyser.getFloatTimeDomainData(this.samples);
    let sum = 0;
    for (const sample of this.samples) sum += sample * sample;
    this.rms = Math.sqrt(sum / this.samples.length);
    this.onLevel(Math.min(1, Math.sqrt(this.rms) * 1.6));
    if (this.waiting && this.rms > SOUND_RMS) {
      this.waiting = false;
      this.onSound();
    }
  }

  close() {
    clearInterval(this.timer);
    this.source?.disconnect();
    this.context?.close();
  }
}

// Differences between two looks at getStats, as figures for people.
export class RtcFigures {
  constructor() {
    this.last = new Map();
    this.pc = null;
  }

  async read(pc) {
    if (pc !== this.pc) {
      this.pc = pc;
      this.last.clear();
    }
    const figures = { fps: null, lost: 0, received: 0, rttMs: null, audioMs: null, videoMs: null };
    for (const entry of (await pc.getStats()).values()) {
      if (entry.type === "inbound-rtp") {
        figures.lost += Math.max(0, entry.packetsLost ?? 0);
        figures.received += entry.packetsReceived ?? 0;
        if (entry.kind === "video") figures.fps = this.rate(entry, "framesDecoded");
        figures[`${entry.kind}Ms`] = this.buffer(entry);
      } else if (entry.type === "candidate-pair" && entry.nominated) {
        if (entry.currentRoundTripTime !== undefined) {
          figures.rttMs = entry.currentRoundTripTime * 1_000;
        }
      }
    }
    return figures;
  }

  change(entry, name) {
    const key = `${entry.id} ${name}`;
    const before = this.last.get(key);
    this.last.set(key, { value: entry[name] ?? 0, at: entry.timestamp });
    if (!before || entry.timestamp <= before.at) return null;
    return { by: (entry[name] ?? 0) - before.value, ms: entry.timestamp - before.at };
  }

  rate(entry, name) {
    const change = this.change(entry, name);
    return change && (change.by * 1_000) / change.ms;
  }

  buffer(entry) {
    const delay = this.change(entry, "jitterBufferDelay");
    const count = this.change(entry, "jitterBufferEmittedCount");
    return delay && count && count.by > 0 ? (delay.by * 1_000) / count.by : null;
  }
}
