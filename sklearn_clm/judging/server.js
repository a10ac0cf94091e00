"use strict";

// The turns of a server on this machine, which keeps each verdict before it gives the next pair.

const KEPT =
  "What was judged before is kept. Press the key again, or open the address that the server printed last.";

function imageAddress(id, number) {
  return `image/${id}/${number}`;
}

async function exchange(path, message) {
  const options = { cache: "no-store", credentials: "omit", redirect: "error" };
  if (message !== undefined) {
    options.method = "POST";
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(message);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error(`The server cannot be reached. ${KEPT}`);
  }
  if (!answer.ok) {
    throw new Error(`Refused: ${await answer.text()}. ${KEPT}`);
  }
  return answer.json();
}
