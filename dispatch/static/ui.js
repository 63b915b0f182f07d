// What both views share: elements, words, problems, addresses.

import { Problem } from "./api.js";

export const $ = (id) => document.getElementById(id);
export const ms = (value) => (value === null ? "–" : `${Math.round(value)} ms`);

export function words(name) {
  const text = String(name).replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function showProblem(problem) {
  $("problemTitle").textContent = problem?.title ?? "";
  $("problemDetail").textContent = problem?.detail ?? "";
  $("problem").hidden = !problem;
}

export function asProblem(error) {
  return error instanceof Problem ? error : new Problem("Something went wrong here", String(error));
}

// An id with a slash would be two steps of a path for whatever stands between us and the service.
export function watchPath(id) {
  const name = encodeURIComponent(id);
  return id.includes("/") ? `/?live=${name}` : `/watch/${name}`;
}
