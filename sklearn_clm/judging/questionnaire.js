"use strict";

// The turns of a file without a server: verdicts stay in this browser until they are saved.

const FILE = JSON.parse(document.getElementById("file").textContent);
const PLACE = `questionnaire ${FILE.digest}`;

// Some browsers keep nothing for a page that is a file: then verdicts last as long as the page.
function recalled() {
  try {
    return JSON.parse(localStorage.getItem(PLACE)) ?? {};
  } catch {
    return {};
  }
}

const kept = { verdicts: [], name: "", ...recalled() };
let left = FILE.pairs.map((pair) => pair.id).filter((id) => !kept.verdicts.some((one) => one.id === id));
let skipped = []; // since the last verdict
let isSaved = true; // since the last verdict

function keep() {
  try {
    localStorage.setItem(PLACE, JSON.stringify(kept));
  } catch {
    // saving the file is what counts
  }
}

function imageAddress(id, number) {
  return FILE.images[id][number];
}

function say(id, key, note) {
  left = left.filter((other) => other !== id);
  if (key === "s") {
    left.push(id);
    skipped.push(id);
    return "Skipped. It comes again at the end.";
  }
  kept.verdicts.push({ id, verdict: key, note });
  skipped = [];
  isSaved = false;
  keep();
  return "";
}

function takeBack(id) {
  const isSkip = skipped.includes(id);
  skipped = skipped.filter((other) => other !== id);
  if (!isSkip) {
    kept.verdicts = kept.verdicts.filter((one) => one.id !== id);
    isSaved = false;
    keep();
  }
  left = [id, ...left.filter((other) => other !== id)];
  return isSkip ? "Here it is again." : "Taken back.";
}

async function exchange(path, message) {
  let notice = "";
  if (message !== undefined) {
    notice = message.key === "u" ? takeBack(message.id) : say(message.id, message.key, message.note ?? "");
  }
  const n = kept.verdicts.length;
  return {
    question: FILE.question,
    judged_by: kept.name || "your name is asked below",
    pair: FILE.pairs.find((pair) => pair.id === left[0]) ?? null,
    undo: skipped.at(-1) ?? kept.verdicts.at(-1)?.id ?? null,
    n_judged: n,
    n_more: left.length,
    estimate: left.length ? `${left.length} left.` : "",
    conclusion: `All ${n} are judged. Save the verdicts, and send the file back.`,
    notice,
  };
}

function save() {
  const name = document.getElementById("name");
  if (kept.name === "") {
    document.getElementById("notice").textContent = "Give your name first: it is saved with the verdicts.";
    name.focus();
    return;
  }
  const content = { format: FILE.format, question: FILE.question, judge: kept.name, verdicts: kept.verdicts };
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(content, null, 1)], { type: "application/json" }));
  link.download = `verdicts-${kept.name.replace(/[^\p{L}\p{N}]+/gu, "-")}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  isSaved = true;
  document.getElementById("notice").textContent = `${kept.verdicts.length} saved as ${link.download}.`;
}

document.addEventListener("DOMContentLoaded", () => {
  const name = document.getElementById("name");
  name.value = kept.name;
  name.addEventListener("input", () => {
    kept.name = name.value.trim();
    keep();
  });
  document.getElementById("save").addEventListener("click", save);
  document.getElementById("save-part").hidden = false;
});
window.addEventListener("beforeunload", (event) => {
  if (!isSaved) {
    event.preventDefault();
  }
});
