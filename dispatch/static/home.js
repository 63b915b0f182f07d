// The list of lives, and the form that makes a new one.

import { api } from "./api.js";
import { $, asProblem, showProblem, watchPath, words } from "./ui.js";

const LIVES_EVERY_MS = 4_000;

export class Home {
  // open(path): go to another view of the page.
  constructor(open) {
    this.open = open;
  }

  start() {
    $("home").hidden = false;
    document.title = "DHSched";
    $("liveName").textContent = "";
    this.timer = setInterval(() => document.hidden || this.refresh(), LIVES_EVERY_MS);
    this.refresh();
  }

  stop() {
    clearInterval(this.timer);
    $("home").hidden = true;
  }

  async refresh() {
    try {
      this.show((await api.lives()).lives);
    } catch (error) {
      showProblem(asProblem(error));
    }
  }

  show(lives) {
    const newestFirst = (a, b) => (b.created_at_ms ?? 0) - (a.created_at_ms ?? 0);
    const open = lives.filter((one) => one.state === "open").sort(newestFirst);
    const shut = lives.filter((one) => one.state !== "open").sort(newestFirst);
    $("lives").replaceChildren(...[...open, ...shut.slice(0, 10)].map((one) => this.row(one)));
    $("noLives").hidden = lives.length > 0;
  }

  row(one) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = watchPath(one.live_id);
    const name = document.createElement("b");
    name.textContent = one.live_id;
    const state = document.createElement("i");
    state.textContent = one.state;
    state.className = one.state;
    const where = document.createElement("small");
    where.textContent = one.generation
      ? `${one.generation.worker_id}, epoch ${one.generation.epoch}`
      : "waits for a worker";
    if (one.state !== "open") where.textContent = words(one.close_reason || "ended");
    link.append(name, state, where);
    item.append(link);
    return item;
  }

  async create(form) {
    const fields = new FormData(form);
    const size = Number(fields.get("size"));
    const options = {
      look: fields.get("look"),
      speed: Number(fields.get("speed")),
      width_px: size,
      height_px: size,
    };
    const body = { options };
    const name = fields.get("live_id").trim();
    if (name) body.live_id = name;
    $("createButton").disabled = true;
    try {
      const made = await api.create(body);
      showProblem(null);
      this.open(watchPath(made.live_id));
    } catch (error) {
      showProblem(asProblem(error));
    } finally {
      $("createButton").disabled = false;
    }
  }
}
