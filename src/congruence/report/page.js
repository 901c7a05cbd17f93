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
