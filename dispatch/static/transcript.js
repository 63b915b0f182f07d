// What was asked for, what is spoken now, what was spoken: kept from the live's events.

const LINES_MAX = 300;

export class Transcript {
  constructor(list, caption) {
    this.list = list;
    this.caption = caption;
    this.pending = [];
    this.segments = new Map();
    this.current = null;
    this.empty();
  }

  empty() {
    this.list.replaceChildren();
    const line = this.line("empty", "Nothing was said yet.");
    this.placeholder = line;
  }

  line(kind, text) {
    this.placeholder?.remove();
    this.placeholder = null;
    const item = document.createElement("li");
    item.className = kind;
    item.textContent = text;
    this.following(() => {
      this.list.append(item);
      while (this.list.children.length > LINES_MAX) this.list.firstElementChild.remove();
    });
    return item;
  }

  // Change the list and keep its end in sight; somebody who scrolled back to read stays there.
  following(change) {
    const end = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 40;
    change();
    if (end) this.list.scrollTop = this.list.scrollHeight;
  }

  // A text was sent; it waits until its segments are spoken.
  sent(text) {
    const entry = { item: this.line("waits", text), offset: null, eventId: "" };
    this.pending.push(entry);
    return entry;
  }

  refused(entry, problem) {
    entry.item.className = "cut";
    const why = document.createElement("small");
    why.textContent = `Not sent. ${problem.title}`;
    this.following(() => entry.item.append(why));
    this.pending = this.pending.filter((one) => one !== entry);
  }

  // A segment's key is its place in the stream; its number may exceed what JavaScript counts exactly.
  started(event) {
    const key = `${event.offset}:${event.data.char ?? 0}`;
    this.settle((one) => one.offset !== null && one.offset <= event.offset);
    this.finish("said");
    const item = this.segments.get(key) ?? this.line("speaks", event.data.text ?? "…");
    item.className = "speaks";
    this.segments.set(key, item);
    if (this.segments.size > LINES_MAX) this.segments.delete(this.segments.keys().next().value);
    this.list.append(...this.pending.map((one) => one.item));
    this.current = { key, item };
    this.caption.textContent = event.data.text ?? "";
  }

  ended(event) {
    if (this.current?.key === `${event.offset}:${event.data.char ?? 0}`) {
      this.finish("said");
      this.caption.textContent = "";
    }
  }

  interrupted(event) {
    this.settle((one) => one.offset === null || one.offset <= event.offset, "cut");
    this.finish("cut");
    this.caption.textContent = "";
    this.line("note", "Interrupted");
  }

  note(text) {
    this.line("note", text);
  }

  settle(which, as = null) {
    for (const one of this.pending.filter(which)) {
      if (as) one.item.className = as;
      else one.item.remove();
    }
    this.pending = this.pending.filter((one) => !which(one));
  }

  finish(as) {
    if (this.current) this.current.item.className = as;
    this.current = null;
  }
}
