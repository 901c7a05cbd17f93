"use strict";
const key = cell => "value" in cell.dataset ? cell.dataset.value : cell.textContent.trim();
const compare = (a, b) => isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b;
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", direction);
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a.cells[column]), key(b.cells[column])];
      if (x === "" || y === "") return (x === "") - (y === ""); // missing values stay last
      return direction === "ascending" ? compare(x, y) : compare(y, x);
    });
    body.append(...rows);
  }));
}
const reveal = () => {
  const chosen = location.hash && document.getElementById(location.hash.slice(1));
  if (chosen && chosen.tagName === "DETAILS") { chosen.open = true; chosen.scrollIntoView(); }
};
addEventListener("hashchange", reveal);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));
reveal();

const tip = document.body.appendChild(document.createElement("div"));
Object.assign(tip, { className: "tip", hidden: true });
tip.setAttribute("role", "status");
for (const svg of document.querySelectorAll("svg[data-hover]")) {
  const { texts, marks } = JSON.parse(svg.dataset.hover);
  const points = marks.flatMap(([wide, high, places]) => places.map(([x, y, text]) => ({ x, y, wide, high, text: texts[text] })));
  const ring = document.createElementNS(svg.namespaceURI, "rect");
  ring.setAttribute("class", "ring");
  let chosen = -1;
  const hide = () => { chosen = -1; tip.hidden = true; ring.remove(); };
  const choose = index => {
    if (index === chosen) return;
    if (index < 0) { hide(); return; }
    chosen = index;
    const { x, y, wide, high, text } = points[index];
    const sizes = { x: x - wide, y: y - high, width: 2 * wide, height: 2 * high, rx: wide === high && wide < 10 ? wide : 2 };
    for (const [name, value] of Object.entries(sizes)) ring.setAttribute(name, value);
    svg.append(ring);
    tip.textContent = text; // never markup: names come from the data
    tip.hidden = false;
    const place = new DOMPoint(x + wide, y - high).matrixTransform(svg.getScreenCTM());
    tip.style.left = `${Math.max(4, Math.min(place.x + 6, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(place.y - 6, innerHeight - tip.offsetHeight - 8))}px`;
  };
  const find = event => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let best = -1, least = 1;
    points.forEach((point, index) => {
      const far = Math.max(Math.abs(at.x - point.x) / point.wide, Math.abs(at.y - point.y) / point.high);
      if (far <= least) { best = index; least = far; }
    });
    choose(best);
  };
  svg.tabIndex = 0;
  svg.setAttribute("aria-description", "The arrow keys read the values.");
  svg.addEventListener("pointermove", find);
  svg.addEventListener("pointerdown", find);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    choose((Math.max(chosen, step < 0 ? 0 : -1) + step + points.length) % points.length);
  });
}

const save = (address, name) => Object.assign(document.createElement("a"), { href: address, download: name }).click();
const standalone = svg => { // colours of the page instead of its variables, and a background
  const copy = svg.cloneNode(true), page = getComputedStyle(svg);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  copy.querySelectorAll(".ring").forEach(one => one.remove());
  for (const one of [copy, ...copy.querySelectorAll("[style]")]) {
    const style = one.getAttribute("style") || "";
    one.setAttribute("style", style.replace(/var\((--[\w-]+)[^)]*\)/g, (_, name) => page.getPropertyValue(name).trim()));
  }
  for (const name of ["data-hover", "tabindex", "aria-description"]) copy.removeAttribute(name);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.setAttribute("style", `background: ${page.getPropertyValue("--page").trim()}; font-family: ${page.fontFamily.replaceAll('"', "'")}; stroke-linejoin: round`);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
};
const saveSvg = (svg, name) => save(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(svg).text)}`, `${name}.svg`);
const savePng = (svg, name) => {
  const { text, width, height } = standalone(svg), image = new Image(), canvas = document.createElement("canvas");
  Object.assign(canvas, { width: 2 * width, height: 2 * height });
  image.onload = () => {
    const pen = canvas.getContext("2d");
    pen.fillStyle = getComputedStyle(document.body).backgroundColor;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    save(canvas.toDataURL("image/png"), `${name}.png`);
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
};
[...document.querySelectorAll("figure")].forEach((figure, index) => {
  const svg = figure.querySelector("svg"), image = figure.querySelector("img"), name = `figure-${index + 1}`;
  const formats = svg ? { SVG: () => saveSvg(svg, name), PNG: () => savePng(svg, name) } : image ? { PNG: () => save(image.src, `${name}.png`) } : {};
  const bar = figure.appendChild(document.createElement("div"));
  bar.className = "export";
  for (const [format, run] of Object.entries(formats)) {
    const button = bar.appendChild(document.createElement("button"));
    Object.assign(button, { type: "button", textContent: format });
    button.setAttribute("aria-label", `Save figure ${index + 1} as ${format}`);
    button.addEventListener("click", run);
  }
});
