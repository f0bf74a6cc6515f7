// The viewer of rows. All text from the corpus goes through textContent, so it stays text.
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const LABELS = Object.fromEntries([...at("label").options].map((option) => [option.value, option.title]));
  const SOURCES = Object.fromEntries([...(at("source")?.options ?? [])].map((option) => [option.value, option.text]));
  const SIGNS = {
    masked: (original) => ["[MASK]", `[MASK:${original}]`],
    random: (original, shown) => [`{${shown}}`, `{${shown}\u2190${original}}`],
    kept: (original) => [`=${original}=`, `=${original}=`],
  };
  const rows = JSON.parse(at("data").textContent);
  let matching = rows;
  let place = 0;

  function toText(row) {
    const read = (part) => (typeof part === "string" ? part : part[1]);
    return row.segments.map((segment) => segment.parts.map(read).join("")).join("\n").toLowerCase();
  }

  function filter() {
    const label = at("label").value;
    const source = at("source")?.value ?? "";
    const shortest = Number(at("shortest").value || 0);
    const longest = Number(at("longest").value || Infinity);
    const text = at("text").value.toLowerCase();
    matching = rows.filter(
      (row) =>
        (label === "" || row.label === Number(label)) &&
        (source === "" || row.source === Number(source)) &&
        row.tokens >= shortest &&
        row.tokens <= longest &&
        (text === "" || (row.sought ??= toText(row)).includes(text)),
    );
    place = 0;
    show();
  }

  function step(by) {
    const next = place + by;
    if (next >= 0 && next < matching.length) {
      place = next;
      show();
    }
  }

  function show() {
    const row = matching[place];
    hideTip();
    at("place").textContent = row ? `${place + 1} of ${matching.length}` : "no row matches";
    // Not `disabled`: a button that is disabled while pressed loses the focus.
    at("previous").setAttribute("aria-disabled", String(place === 0));
    at("next").setAttribute("aria-disabled", String(place + 1 >= matching.length));
    at("row").hidden = !row;
    at("row-title").textContent = row
      ? `Row ${row.row.toLocaleString("en")}: ${LABELS[row.label]}. ${row.tokens} tokens, ` +
        `${row.masked} masked, document ${row.document}${row.b ? `, B of document ${row.b}` : ""}` +
        (row.source in SOURCES ? `, source ${SOURCES[row.source]}` : "")
      : "";
    at("segments").replaceChildren(...(row ? row.segments.map(makeSegment) : []));
  }

  function make(tag, className, text) {
    const element = document.createElement(tag);
    element.className = className;
    element.textContent = text;
    return element;
  }

  function makeSegment(segment) {
    const block = make("div", "segment", "");
    const text = make("p", "", "");
    text.dir = "auto";
    text.append(...segment.parts.map(makePart));
    block.append(make("span", "name", segment.name), text);
    return block;
  }

  function makePart(part) {
    if (typeof part === "string") return document.createTextNode(part);
    const [kind, original, shown] = part;
    const token = make("bdi", `token ${kind}`, SIGNS[kind](original, shown)[Number(at("reveal").checked)]);
    token.tabIndex = 0;
    token.dataset.original = original;
    token.dataset.kind = kind;
    return token;
  }

  const SAYS = { masked: "masked", random: "replaced at random", kept: "left unchanged" };

  function showTip(event) {
    const token = event.target.closest?.(".token");
    if (!token) return;
    hideTip();
    const tip = at("tip");
    tip.replaceChildren(make("bdi", "", token.dataset.original), make("span", "", SAYS[token.dataset.kind]));
    tip.hidden = false;
    token.setAttribute("aria-describedby", "tip");
    placeTip();
  }

  function placeTip() {
    const tip = at("tip");
    const token = document.querySelector("[aria-describedby=tip]");
    if (!token) return;
    const box = token.getBoundingClientRect();
    const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 6;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 0 ? above : box.bottom + 6}px`;
  }

  function hideTip() {
    at("tip").hidden = true;
    document.querySelector("[aria-describedby=tip]")?.removeAttribute("aria-describedby");
  }

  function press(event) {
    const isTyping = event.target.matches?.("input:not([type=checkbox]), select");
    if (event.key === "Escape") hideTip();
    if (isTyping || event.altKey || event.ctrlKey || event.metaKey) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) {
      event.preventDefault();
      step(by);
    }
  }

  at("filters").addEventListener("input", filter);
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("reveal").addEventListener("change", show);
  at("previous").addEventListener("click", () => step(-1));
  at("next").addEventListener("click", () => step(1));
  document.addEventListener("keydown", press);
  for (const name of ["mouseover", "focusin"]) at("segments").addEventListener(name, showTip);
  for (const name of ["mouseout", "focusout"]) at("segments").addEventListener(name, hideTip);
  // The browser scrolls a focused token into view after the hint is shown, so the hint has to follow.
  for (const name of ["scroll", "resize"]) addEventListener(name, placeTip, { passive: true });
  show();
})();
