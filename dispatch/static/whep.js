// WHEP: one POST makes a connection, one DELETE ends it. And a player that keeps one alive, and
// makes the next before it breaks the old, so that a move between workers shows no gap.

import { Problem, request } from "./api.js";

const GATHER_MS = 200;
const CONNECT_MS = 12_000;
const STALL_MS = 2_500;
const LOOK_MS = 500;
const BACKOFF_MS = [300, 700, 1_500, 3_000, 6_000, 10_000];

class Connection {
  constructor(url) {
    this.url = url;
    this.resource = null;
    this.closed = false;
    this.abort = new AbortController();
    this.pc = new RTCPeerConnection({ bundlePolicy: "max-bundle", iceServers: [] });
    this.stream = new MediaStream();
    this.pc.addTransceiver("audio", { direction: "recvonly" });
    this.pc.addTransceiver("video", { direction: "recvonly" });
    this.pc.addEventListener("track", ({ track }) => this.stream.addTrack(track));
  }

  // A worker that ends a connection says so on the secured transport; ICE would notice much later.
  onLost(lost) {
    this.pc.addEventListener("connectionstatechange", () => {
      if (["failed", "closed"].includes(this.pc.connectionState)) lost();
    });
    const transport = this.pc.getReceivers()[0].transport;
    transport?.addEventListener("statechange", () => {
      if (["failed", "closed"].includes(transport.state)) lost();
    });
  }

  async open() {
    await this.pc.setLocalDescription(await this.pc.createOffer());
    await this.gathered();
    const response = await request(this.url, {
      method: "POST",
      sdp: this.pc.localDescription.sdp,
      signal: this.abort.signal,
    });
    const location = response.headers.get("Location");
    if (location) this.resource = new URL(location, new URL(this.url, window.location.href)).href;
    const sdp = await response.text();
    if (this.closed) {
      this.forget();
      return;
    }
    await this.pc.setRemoteDescription({ type: "answer", sdp });
  }

  // The worker must be reachable and learns our address from our checks: one candidate is enough.
  gathered() {
    if (this.pc.iceGatheringState === "complete") return Promise.resolve();
    return new Promise((resolve) => {
      setTimeout(resolve, GATHER_MS);
      this.pc.addEventListener("icecandidate", resolve, { once: true });
    });
  }

  forget() {
    if (!this.resource) return;
    request(this.resource, { method: "DELETE", keepalive: true }).catch(() => {});
    this.resource = null;
  }

  close() {
    if (this.closed) return;
    this.closed = true;
    this.abort.abort();
    this.pc.close();
    this.forget();
  }
}

export class Player {
  // videos: two elements that take turns. onState(text, kind), onStream(stream), onProblem(problem).
  constructor(url, videos, { onState, onStream, onProblem }) {
    this.url = url;
    this.videos = videos;
    this.onState = onState;
    this.onStream = onStream;
    this.onProblem = onProblem;
    this.shown = 0;
    this.muted = true;
    this.current = null;
    this.next = null;
    this.attempt = 0;
    this.timer = null;
    this.stopped = false;
    this.lastFrames = 0;
    this.lastFrameAt = 0;
    this.watcher = setInterval(() => this.look(), LOOK_MS);
  }

  get pc() {
    return this.current?.pc ?? null;
  }

  // Connect beside what plays now; the first frame of the new connection replaces it.
  async connect() {
    if (this.stopped || this.next) return;
    clearTimeout(this.timer);
    this.timer = null;
    const next = new Connection(this.url);
    this.next = next;
    if (!this.current) this.onState("Connecting", "wait");
    const deadline = setTimeout(() => this.failed(next), CONNECT_MS);
    try {
      await next.open();
      next.onLost(() => this.failed(next));
      await this.firstFrame(next);
      clearTimeout(deadline);
      if (this.next === next) this.swap(next);
    } catch (problem) {
      clearTimeout(deadline);
      this.failed(next, problem);
    }
  }

  firstFrame(connection) {
    const video = this.videos[1 - this.shown];
    video.muted = true;
    video.srcObject = connection.stream;
    const playing = video.play();
    playing?.catch(() => {}); // a muted video may always play; what else goes wrong shows as a stall
    return new Promise((resolve) => {
      if (video.requestVideoFrameCallback) video.requestVideoFrameCallback(() => resolve());
      else video.addEventListener("playing", resolve, { once: true });
    });
  }

  swap(next) {
    const old = this.current;
    this.current = next;
    this.next = null;
    this.attempt = 0;
    const [from, to] = [this.videos[this.shown], this.videos[1 - this.shown]];
    this.shown = 1 - this.shown;
    to.classList.add("shown");
    from.classList.remove("shown");
    from.muted = true;
    from.srcObject = null;
    old?.close();
    this.lastFrames = 0;
    this.lastFrameAt = performance.now();
    this.setMuted(this.muted);
    this.onStream(next.stream);
    this.onState("Connected", "on");
  }

  failed(connection, problem) {
    if (connection !== this.next && connection !== this.current) return;
    connection.close();
    if (connection === this.next) this.next = null;
    if (connection === this.current) this.current = null;
    if (this.stopped || problem?.name === "AbortError") return;
    if (problem instanceof Problem) {
      if ([404, 410].includes(problem.status)) {
        this.stop();
        this.onState("Ended", "off");
        this.onProblem(problem);
        return;
      }
      if (problem.status && problem.status !== 503) this.onProblem(problem);
    }
    if (this.current) return; // the old connection still plays
    const backoff = BACKOFF_MS[Math.min(this.attempt, BACKOFF_MS.length - 1)];
    const wait = Math.max(backoff * (0.75 + Math.random() / 2), (problem?.retryAfterS ?? 0) * 1_000);
    this.attempt += 1;
    this.onState("Reconnecting", "wait");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), wait);
  }

  // A connection may look well and carry nothing: the worker may be gone without a word.
  async look() {
    const current = this.current;
    if (!current || this.next || document.hidden) {
      this.lastFrameAt = performance.now();
      return;
    }
    const video = this.videos[this.shown];
    const frames = video.getVideoPlaybackQuality?.().totalVideoFrames ?? video.currentTime;
    if (frames !== this.lastFrames) {
      this.lastFrames = frames;
      this.lastFrameAt = performance.now();
    } else if (performance.now() - this.lastFrameAt > STALL_MS) {
      this.lastFrameAt = performance.now();
      this.onState("Reconnecting", "wait");
      await this.connect();
    }
  }

  // Returns whether sound plays now: browsers refuse it before a person did something here.
  async setMuted(muted) {
    this.muted = muted;
    const video = this.videos[this.shown];
    video.muted = muted;
    try {
      await video.play();
    } catch {
      if (!muted) {
        this.muted = true;
        video.muted = true;
        await video.play().catch(() => {});
      }
    }
    return !this.muted;
  }

  stop() {
    this.stopped = true;
    clearInterval(this.watcher);
    clearTimeout(this.timer);
    for (const connection of [this.current, this.next]) connection?.close();
    this.current = this.next = null;
  }
}
