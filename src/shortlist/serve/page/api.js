// Requests to the service. The token stays in this tab.
const KEY = "shortlist-token";

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export class ApiError extends Error {
  constructor(status, body) {
    super(body.rule || "The service did not answer.");
    this.status = status;
    this.hint = body.hint || "";
  }
}

async function call(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new ApiError(0, { rule: "The service cannot be reached.", hint: "Check that it is running." });
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, body);
  return body;
}

export const get = (path) => call(path);
export const post = (path, body) =>
  call(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
