// The page: a list of lives with a form for a new one, or one live to watch and to talk to.

import { api } from "./api.js";
import { Home } from "./home.js";
import { RtcFigures, SoundMeter } from "./meters.js";
import { Transcript } from "./transcript.js";
import { $, asProblem, ms, showProblem, words } from "./ui.js";
import { Player } from "./whep.js";

const LIVE_EVERY_MS = 5_000;
const FIGURES_EVERY_MS = 1_000;
const HEARD_WITHIN_MS = 1_000;

// -- one live

class Watch {
  constructor(liveId) {
    this.liveId = liveId;
    this.epoch = -1;
    this.sentAt = null;
    this.expected = null;
    this.sounds = [];
    this.figures = new RtcFigures();
  }

  start() {
    $("watch").hidden = false;
    $("connection").hidden = false;
    document.title = `${this.liveId} · DHSched`;
    $("liveName").textContent = this.liveId;
    this.transcript = new Transcript($("transcript"), $("caption"));
    this.meter = new SoundMeter({
      onLevel: (level) => ($("level").style.transform = `scaleX(${level.toFixed(3)})`),
      onSound: () => this.heard("heard"),
    });
    this.player = new Player(api.whep(this.liveId), [$("videoA"), $("videoB")], {
      onState: (text, kind) => this.showConnection(text, kind),
      onStream: (stream) => this.onStream(stream),
      onProblem: showProblem,
    });
    this.player.muted = false; // with sound where the browser lets us
    this.listen();
    this.refresh();
    this.player.connect();
    this.timers = [
      setInterval(() => this.refresh(), LIVE_EVERY_MS),
      setInterval(() => this.showFigures(), FIGURES_EVERY_MS),
    ];
    $("text").focus({ preventScroll: true });
  }

  stop() {
    this.timers.forEach(clearInterval);
    this.events?.close();
    this.player.stop();
    this.meter.close();
    for (const id of ["videoA", "videoB"]) {
      $(id).srcObject = null;
      $(id).classList.remove("shown");
    }
    $("screen").dataset.empty = "true";
    $("watch").hidden = true;
    $("connection").hidden = true;
  }

  showConnection(text, kind) {
    $("connection").textContent = text;
    $("connection").dataset.state = kind;
    $("waiting").textContent = kind === "off" ? "This live has ended." : `${text} …`;
    if (kind === "on") {
      $("screen").dataset.empty = "false";
      showProblem(null);
    }
  }

  async onStream(stream) {
    this.meter.listen(stream);
    await this.player.setMuted(this.player.muted);
    this.showSound();
    // Where sound may play, a meter may run too, without a click.
    if (!this.player.muted) await this.startMeter();
  }

  async startMeter() {
    await this.meter.start();
    if (this.player.current) this.meter.listen(this.player.current.stream);
  }

  showSound() {
    const on = !this.player.muted;
    $("sound").setAttribute("aria-pressed", String(on));
    $("soundText").textContent = on ? "Sound on" : "Turn sound on";
  }

  async toggleSound() {
    await this.startMeter();
    await this.player.setMuted(!this.player.muted);
    this.showSound();
  }

  // -- what the live tells

  listen() {
    this.events = new EventSource(api.events(this.liveId));
    const take = (message) => this.onEvent(message);
    const kinds = [
      "state_updated", "generation_committed", "speak_started", "speak_ended", "interrupted",
      "fenced", "error", "dead_lettered", "claimed", "moved",
    ];
    for (const kind of kinds) this.events.addEventListener(kind, take);
    this.events.addEventListener("message", take);
  }

  onEvent(message) {
    if (!message.data) return; // EventSource's own `error` comes under the same name
    let event;
    try {
      event = JSON.parse(message.data);
      if (typeof event.data === "string") event.data = JSON.parse(event.data);
    } catch {
      return;
    }
    event.data ??= {};
    switch (event.kind ?? message.type) {
      case "speak_started":
        this.transcript.started(event);
        this.setSpeaking(true);
        if (this.expected === null || event.source_event_id === this.expected) {
          this.reported();
        }
        break;
      case "speak_ended":
        this.transcript.ended(event);
        this.setSpeaking(this.transcript.current !== null);
        break;
      case "interrupted":
        this.transcript.interrupted(event);
        this.setSpeaking(false);
        this.sentAt = null;
        break;
      case "state_updated":
        if (event.data.state) $("factState").textContent = words(event.data.state);
        if (event.data.state === "closed") this.refresh();
        break;
      case "generation_committed":
      case "claimed":
        this.newGeneration(event.worker_id, event.epoch);
        break;
      case "moved":
        this.newGeneration(event.data.to_worker_id, event.data.to_epoch);
        break;
      case "dead_lettered":
        this.transcript.note(`Not spoken: ${words(event.data.reason ?? "refused")}`);
        break;
      case "error":
        this.transcript.note(`Trouble: ${words(event.data.reason ?? "unknown")}`);
        break;
      default:
    }
  }

  // The live has a new owner: connect to it beside the old connection, which plays until then.
  newGeneration(workerId, epoch) {
    if (!workerId || !(epoch > this.epoch)) return;
    const moved = this.epoch >= 0;
    this.epoch = epoch;
    this.showGeneration(workerId, epoch);
    if (moved) {
      this.transcript.note(`Moved to ${workerId}`);
      this.player.connect();
    }
  }

  showGeneration(workerId, epoch) {
    $("factGeneration").textContent = `${workerId}, epoch ${epoch}`;
    $("factGeneration").title = $("factGeneration").textContent;
  }

  async refresh() {
    if (document.hidden) return;
    try {
      const live = await api.live(this.liveId);
      if (live.generation) this.newGeneration(live.generation.worker_id, live.generation.epoch);
      if (live.state !== "open") {
        this.ended(live);
      } else if ($("factState").textContent === "–") {
        $("factState").textContent = live.claimed === false ? "Waiting" : "Open";
      }
    } catch (error) {
      const problem = asProblem(error);
      if (problem.status === 404) this.ended({ close_reason: "" });
      showProblem(problem);
    }
  }

  ended(live) {
    this.events.close();
    this.timers.forEach(clearInterval);
    this.player.stop();
    this.showConnection("Ended", "off");
    $("factState").textContent = "Closed";
    $("screen").dataset.empty = "true";
    this.setSpeaking(false);
    if (live.close_reason) this.transcript.note(`The live ended: ${words(live.close_reason)}`);
    for (const id of ["send", "interrupt", "text"]) $(id).disabled = true;
  }

  setSpeaking(on) {
    $("speaking").dataset.on = String(on);
    $("speakingText").textContent = on ? "Speaking" : "Quiet";
  }

  // -- what a person does

  async send() {
    const text = $("text").value.trim();
    if (!text) return;
    await this.startMeter();
    const entry = this.transcript.sent(text);
    $("text").value = "";
    const wasQuiet = $("speaking").dataset.on === "false";
    this.sentAt = wasQuiet ? performance.now() : null;
    this.expected = null;
    this.meter.expect();
    try {
      const pushed = await api.text(this.liveId, text);
      entry.offset = pushed.offset;
      entry.eventId = this.expected = pushed.event_id;
      showProblem(null);
    } catch (error) {
      const problem = asProblem(error);
      this.transcript.refused(entry, problem);
      showProblem(problem);
      this.sentAt = null;
      if (!$("text").value) $("text").value = text;
    }
  }

  async interrupt() {
    try {
      await api.interrupt(this.liveId);
      showProblem(null);
    } catch (error) {
      showProblem(asProblem(error));
    }
  }

  // -- figures

  // Heard by this page where it may listen, else as the worker reported it.
  reported() {
    const [sentAt, at] = [this.sentAt, performance.now()];
    if (sentAt === null) return;
    const settle = () => this.sentAt === sentAt && this.heard("reported", at);
    if (this.meter.waiting) setTimeout(settle, HEARD_WITHIN_MS);
    else settle();
  }

  heard(how, at = performance.now()) {
    if (this.sentAt === null) return;
    this.sounds.push(at - this.sentAt);
    this.sentAt = null;
    const sorted = [...this.sounds].sort((a, b) => a - b);
    const middle = sorted[Math.floor(sorted.length / 2)];
    const last = this.sounds.at(-1);
    $("factSound").textContent = ms(last);
    $("factSound").title =
      `From Send to the first sound ${how === "heard" ? "heard here" : "reported by the worker"}; ` +
      `median of ${sorted.length}: ${ms(middle)}`;
  }

  async showFigures() {
    const pc = this.player.pc;
    if (!pc || document.hidden) return;
    const now = await this.figures.read(pc);
    $("factFps").textContent = now.fps === null ? "–" : `${now.fps.toFixed(0)} /s`;
    $("factBuffer").textContent =
      now.audioMs === null && now.videoMs === null
        ? "–"
        : `${Math.round(now.audioMs ?? 0)} / ${Math.round(now.videoMs ?? 0)} ms`;
    $("factLost").textContent = now.received ? `${now.lost} of ${now.received}` : "–";
    $("factRtt").textContent = now.rttMs !== null && now.rttMs < 1 ? "< 1 ms" : ms(now.rttMs);
  }
}

// -- which of the two

let view = null;

function route() {
  view?.stop();
  for (const id of ["send", "interrupt", "text"]) $(id).disabled = false;
  const match = /^\/watch\/([^/]+)\/?$/.exec(location.pathname);
  const id = match ? decodeURIComponent(match[1]) : new URLSearchParams(location.search).get("live");
  view = id ? new Watch(id) : new Home(go);
  view.start();
}

// In place, so that a click here still lets the next view start with sound.
function go(path) {
  history.pushState(null, "", path);
  showProblem(null);
  route();
}

addEventListener("popstate", route);
addEventListener("pagehide", () => view instanceof Watch && view.player.stop());
addEventListener("pageshow", (shown) => shown.persisted && route());
document.addEventListener("click", (click) => {
  const link = click.target.closest?.("a[href^='/']");
  if (!link || click.defaultPrevented || click.ctrlKey || click.metaKey || click.shiftKey) return;
  click.preventDefault();
  go(link.getAttribute("href"));
});
$("create").addEventListener("submit", (submit) => {
  submit.preventDefault();
  view.create(submit.target);
});
$("composer").addEventListener("submit", (submit) => {
  submit.preventDefault();
  view.send();
});
$("text").addEventListener("keydown", (key) => {
  if (key.key === "Enter" && !key.shiftKey && !key.isComposing) {
    key.preventDefault();
    view.send();
  }
});
$("interrupt").addEventListener("click", () => view.interrupt());
$("sound").addEventListener("click", () => view.toggleSound());
$("problemClose").addEventListener("click", () => showProblem(null));
route();
