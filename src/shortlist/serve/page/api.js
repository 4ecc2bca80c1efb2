// Requests to the service. The token stays in this tab.
const KEY = "shortlist-token";
const ATTEMPTS = 4; // of a read while the service is busy

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export class ApiError extends Error {
  constructor(status, body) {
    super(sentence(body.rule || "the service did not answer"));
    this.status = status;
    this.error = body.error || "";
    this.hint = body.hint ? sentence(body.hint) : "";
  }
}

const sentence = (text) => {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
};

async function call(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new ApiError(0, { rule: "the service cannot be reached", hint: "check that it is running and that this device is online" });
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, body);
  return body;
}

// The first look at a large model takes a while: a read that was given up is asked for again.
export async function get(path) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await call(path);
    } catch (error) {
      if (error.status !== 503 || attempt === ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

export const post = (path, body) =>
  call(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
