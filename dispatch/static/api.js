// The service's HTTP interface, as far as the page needs it. Errors are RFC 9457 problem details.

export class Problem extends Error {
  constructor(title, detail, status = 0, retryAfterS = 0) {
    super(detail ? `${title}: ${detail}` : title);
    this.title = title;
    this.detail = detail || "";
    this.status = status;
    this.retryAfterS = retryAfterS;
  }
}

async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // Something between us and the service answered; its status must do.
  }
  const retry = Number(response.headers.get("Retry-After")) || Number(body.retry_after_s) || 0;
  return new Problem(
    body.title || `The service answered ${response.status}`,
    body.detail || response.statusText,
    response.status,
    retry,
  );
}

export async function request(path, { method = "GET", json, sdp, signal, keepalive } = {}) {
  const headers = { Accept: "application/json, application/problem+json, application/sdp" };
  let body;
  if (json !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(json);
  } else if (sdp !== undefined) {
    headers["Content-Type"] = "application/sdp";
    body = sdp;
  }
  let response;
  try {
    response = await fetch(path, { method, headers, body, signal, keepalive });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The service cannot be reached", "Check that it runs and try again.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

const live = (id) => `/v1/lives/${encodeURIComponent(id)}`;

export const api = {
  create: async (body) => (await request("/v1/lives", { method: "POST", json: body })).json(),
  lives: async () => (await request("/v1/lives")).json(),
  live: async (id) => (await request(live(id))).json(),
  text: async (id, text) =>
    (await request(`${live(id)}/text`, { method: "POST", json: { text, end_turn: true } })).json(),
  interrupt: async (id) => {
    await request(`${live(id)}/interrupt`, { method: "POST" });
  },
  whep: (id) => `${live(id)}/whep`,
  events: (id) => `${live(id)}/events`,
};
