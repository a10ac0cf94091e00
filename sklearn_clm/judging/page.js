"use strict";

// Whatever a model or a prompt says goes into the page as text, never as markup.
//
// Before this file another one is loaded that gives `exchange(path, message)`, the next turn, and
// `imageAddress(id, number)`: server.js, or questionnaire.js where there is no server.

const at = (id) => document.getElementById(id);
const KEYS = ["y", "n", "s", "u"];

let turn = null;
let isBusy = false;
let isSeen = false; // the end of the response, or the part of it that is judged

function element(name, className, text) {
  const node = document.createElement(name);
  node.className = className;
  node.textContent = text;
  return node;
}

// All signs stay as they are written. Markdown is only set so that it can be read.
function kindOfLine(text) {
  if (/^\s*\|/.test(text)) {
    return "code";
  }
  return /^#{1,6} /.test(text) ? "heading" : /^\s*([-*+]|\d+[.)]) /.test(text) ? "item" : "";
}

function fill(node, pieces) {
  if (pieces.every(([text]) => text === "")) {
    node.replaceChildren(element("span", "empty", "(empty)"));
    return;
  }
  const lines = [element("div", "line", "")];
  for (const [text, differs] of pieces) {
    text.split("\n").forEach((part, number) => {
      if (number > 0) {
        lines.push(element("div", "line", ""));
      }
      lines.at(-1).append(differs ? element("mark", "", part) : part);
    });
  }
  let isCode = false;
  for (const line of lines) {
    const isFence = /^\s*(```|~~~)/.test(line.textContent);
    const kind = isCode || isFence ? "code" : kindOfLine(line.textContent);
    line.className = `line ${kind}`;
    isCode = isCode !== isFence;
  }
  node.replaceChildren(...lines);
}

function showPrompt(pair) {
  const nodes = [];
  let role = "";
  for (const block of pair.prompt) {
    if (block.role !== role) {
      role = block.role;
      nodes.push(element("span", "role", role));
    }
    if (block.image === null) {
      const text = element("div", "text", "");
      text.dir = "auto";
      fill(text, [[block.text, false]]);
      nodes.push(text);
    } else {
      const image = document.createElement("img");
      image.alt = "Image of the prompt";
      image.src = imageAddress(pair.id, Number(block.image));
      nodes.push(image);
    }
  }
  at("prompt").replaceChildren(...nodes);
  at("prompt").scrollTop = 0;
  at("prompt-part").hidden = nodes.length === 0;
}

// numbered as citations number them
function showPassages(passages) {
  const nodes = passages.flatMap((pieces, number) => {
    const text = element("div", "text", "");
    text.dir = "auto";
    fill(text, pieces);
    return [element("span", "role", String(number + 1)), text];
  });
  at("passages").replaceChildren(...nodes);
  at("passages").scrollTop = 0;
  at("passages-part").hidden = nodes.length === 0;
}

function showPair(pair) {
  showPrompt(pair);
  fill(at("response"), pair.response);
  const isComponent = pair.context.length > 0;
  fill(at("context"), pair.context);
  at("context-part").hidden = !isComponent;
  showPassages(pair.passages);
  at("response-title").textContent = isComponent ? "Judge this part" : "Response";
  at("references").replaceChildren(
    ...pair.references.map((pieces) => {
      const node = element("div", "reference text", "");
      node.dir = "auto";
      fill(node, pieces);
      return node;
    }),
  );
  const n = pair.references.length;
  at("references-part").hidden = n === 0;
  at("references-title").textContent = n > 1 ? "References" : "Reference";
  at("response-part").parentElement.classList.toggle("both", n > 0);
  at("legend").hidden = pair.compared === null;
  if (document.body.dataset.pair !== pair.id) {
    at("note").value = "";
  }
  document.body.dataset.pair = pair.id;
}

// Headings, tables and paragraphs of a report in Markdown; all else stays as it is written.
// Sections of the third level unfold.
function showReport(node, text) {
  let place = node;
  node.replaceChildren();
  for (const part of text.split(/\n{2,}/)) {
    const lines = part.split("\n");
    if (lines.length > 1 && lines.every((line) => line.startsWith("|"))) {
      const table = element("table", "", "");
      for (const line of lines.filter((_, number) => number !== 1)) {
        const row = table.insertRow();
        line.slice(1, -1).split("|").forEach((cell) => row.append(element("td", "", cell.trim())));
      }
      place.append(table);
    } else if (part.startsWith("### ")) {
      place = element("details", "", "");
      place.append(element("summary", "", part.slice(4)));
      node.append(place);
    } else if (/^#+ /.test(part)) {
      place = node;
      node.append(element("h3", "", part.replace(/^#+ /, "")));
    } else {
      place.append(element("p", "text", part));
    }
  }
}

function show(next) {
  turn = next;
  document.title = [turn.estimate, "Judge"].filter(Boolean).join(" · ");
  at("question").textContent = turn.question;
  at("who").textContent = `${turn.n_judged} judged · ${turn.judged_by}`;
  at("estimate").textContent = turn.estimate;
  at("progress").max = Math.max(turn.n_judged + turn.n_more, 1);
  at("progress").value = turn.n_judged;
  at("notice").textContent = turn.notice;
  at("pair").hidden = turn.pair === null;
  for (const id of ["note-part", "y", "n", "s"]) {
    at(id).hidden = turn.pair === null;
  }
  at("u").hidden = turn.undo === null && turn.pair === null;
  at("end").hidden = turn.pair !== null || turn.conclusion === "";
  showReport(at("conclusion"), turn.conclusion);
  if (turn.pair === null) {
    delete document.body.dataset.pair;
  } else {
    showPair(turn.pair);
  }
  window.scrollTo(0, 0);
  isSeen = false;
  const marked = at("context").querySelector("mark");
  if (marked !== null) {
    at("context").scrollTop = marked.offsetTop - at("context").clientHeight / 3;
  }
}

function setBusy(value) {
  isBusy = value;
  document.body.setAttribute("aria-busy", String(value));
  for (const key of KEYS) {
    at(key).disabled = turn === null || (key === "u" ? turn.undo === null : turn.pair === null);
  }
}

async function ask(path, message) {
  if (isBusy) {
    return;
  }
  setBusy(true);
  const slow = setTimeout(() => {
    at("notice").textContent = "Working …";
  }, 500);
  try {
    show(await exchange(path, message));
  } catch (error) {
    at("notice").textContent = error.message;
  } finally {
    clearTimeout(slow);
    setBusy(false);
  }
}

function look() {
  if (turn === null || turn.pair === null) {
    return false;
  }
  const end = at("context").querySelector("mark") ?? at("response").lastElementChild;
  const { bottom } = end.getBoundingClientRect();
  isSeen ||= bottom <= document.querySelector("footer").getBoundingClientRect().top;
  return isSeen;
}

function press(key) {
  if (isBusy || turn === null || at(key).disabled) {
    return;
  }
  if ((key === "y" || key === "n") && !look()) {
    at("notice").textContent = "The response goes on. A verdict is taken once its end was in sight.";
    window.scrollBy(0, window.innerHeight / 2);
    return;
  }
  const message = { id: key === "u" ? turn.undo : turn.pair.id, key };
  const note = at("note").value.trim();
  if (note !== "" && (key === "y" || key === "n")) {
    message.note = note;
  }
  ask("verdict", message);
}

for (const key of KEYS) {
  at(key).addEventListener("click", () => press(key));
}
document.addEventListener("scroll", look);
document.addEventListener("keydown", (event) => {
  const key = event.key.toLowerCase();
  if (event.target instanceof HTMLInputElement) {
    if (key === "enter" || key === "escape") {
      event.preventDefault();
      event.target.blur();
    }
    return;
  }
  if (key === "c" && !event.ctrlKey && !event.metaKey && !event.altKey && turn !== null && turn.pair !== null) {
    event.preventDefault();
    at("note").focus();
    return;
  }
  if (KEYS.includes(key) && !event.repeat && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    press(key);
  }
});
setBusy(false);
ask("turn");
