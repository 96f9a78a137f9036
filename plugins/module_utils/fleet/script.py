# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The script of the fleet's page: draws the data, searches, filters, sorts, and shows a host.

It makes elements and sets their text; no data becomes markup. States are judged by the time at which the page is seen.
"""

from __future__ import annotations

SCRIPT = """\
"use strict";
(function () {
var D = JSON.parse(document.getElementById("data").textContent), T = D.texts, S = D.states, ALL = D.hosts;
var now = 0, query = {q: "", state: "", group: "", host: "", size: "", sort: "state", all: ""}, tiles = [],
  back = null;
var MARK = {fault: "F", differs: "D", unknown: "?", noted: "n", ok: "\\u00b7", none: "\\u2013"},
  ROWS = innerWidth < 768 ? 25 : 300;
var COLUMNS = ["state", "host", "rack", "group", "what", "person", "oldest", "seen"];
var HEADS = ["State", "Host", "Place", "Group", "What", "Person", "Oldest", "Last seen"];

function $(id) { return document.getElementById(id); }
function make(name, attributes, children) {
  var element = document.createElement(name), key;
  for (key in attributes || {}) {
    if (key === "text") element.textContent = attributes[key];
    else if (key.slice(0, 2) === "on") element.addEventListener(key.slice(2), attributes[key]);
    else if (attributes[key] !== null) element.setAttribute(key, attributes[key]);
  }
  (children || []).forEach(function (child) { if (child) element.appendChild(child); });
  return element;
}
function age(at) {
  if (at === null) return "never";
  var s = Math.max(0, now - at), units = [[86400, "d"], [3600, "h"], [60, "min"]], i;
  for (i = 0; i < 3; i++) if (s >= units[i][0]) return Math.floor(s / units[i][0]) + " " + units[i][1];
  return "now";
}
function ago(at) { var text = age(at); return text === "never" || text === "now" ? text : text + " ago"; }
function seen(host) {
  var asked = host.data.some(function (datum) { return datum.kind === "health" || datum.kind === "image"; });
  return asked || host.seen !== null ? ago(host.seen) : "";
}
function stateOf(datum) {
  if (datum.state !== "ok" && datum.state !== "noted") return datum.state;
  return datum.at === null || now - datum.at > D.limits[datum.kind] ||
    datum.at - now > D.ahead ? "unknown" : datum.state;
}
function datumOf(row) {
  return {kind: T[row[0]], state: S[row[1]], text: T[row[2]], at: row[3] < 0 ? null : D.base + row[3],
    details: row[4].map(function (i) { return T[i]; }), page: T[row[5]]};
}
var hosts = ALL.map(function (row, index) {
  var rack = D.racks[row[2]];
  return {index: index, name: row[0], group: T[row[1]], rack: row[2], unit: row[3], units: row[4], on: row[5],
    spare: !!(row[6] & 1),
    isSwitch: !!(row[6] & 2), seen: row[7] < 0 ? null : D.base + row[7], drain: T[row[8]], maintenance: T[row[9]],
    data: row[10].map(datumOf), place: rack ? rack[0] + (row[3] ? " U" + row[3] : "") : "", links: [], sick: {}};
});
hosts.forEach(function (host) { if (host.on >= 0 && !host.place) host.place = "on " + hosts[host.on].name; });
D.links.forEach(function (row) {
  for (var i = 1; i < row.length; i += 2) {
    hosts[row[0]].links.push([row[i], row[i + 1]]);
    hosts[row[i]].links.push([row[0], row[i + 1]]);
  }
});
D.sick.forEach(function (row) {
  hosts[row[0]].sick[row[1]] = hosts[row[1]].sick[row[0]] = T[row[2]];
});
function judge() {
  now = Date.now() / 1000;
  hosts.forEach(function (host) {
    host.level = S.length - 1; host.what = ""; host.oldest = null;
    host.data.forEach(function (datum) {
      var level = S.indexOf(stateOf(datum)), old = level !== S.indexOf(datum.state) ? "too old: " : "";
      if (level < host.level) { host.level = level; host.what = datum.kind + ": " + old + datum.text; }
      if (datum.at !== null && (host.oldest === null || datum.at < host.oldest)) host.oldest = datum.at;
    });
    host.state = S[host.level];
    if (host.state === "ok") host.what = "";
    host.person = [host.drain && "drained: " + host.drain, host.maintenance && "in maintenance: " + host.maintenance,
      host.spare && "spare"].filter(Boolean).join("; ");
    host.search = [host.name, host.group, host.place, host.person,
      D.words[host.state][0]].concat(host.data.map(function (datum) {
      return datum.kind + " " + datum.text + " " + datum.details.join(" ");
    })).join(" ").toLowerCase();
  });
}
function matches(host) {
  return (!query.state || query.state.split(",").indexOf(host.state) >= 0) && (!query.group ||
    host.group === query.group) &&
    query.q.toLowerCase().split(/\\s+/).every(function (word) { return host.search.indexOf(word) >= 0; });
}
function mark(state) {
  return make("span", {"class": "mark " + state, text: MARK[state], title: D.words[state][0], role: "img",
    "aria-label": D.words[state][0]});
}
function tile(host) {
  var element = make("button", {type: "button", tabindex: "-1", onclick: function () { open(host.index, element); }},
    [make("b"), make("span", {text: host.name})]);
  tiles[host.index] = element;
  return element;
}
function drawTile(host) {
  var element = tiles[host.index], low = host.units * (host.on < 0) === 1;
  element.className = "tile " + host.state + (host.isSwitch ? " switch" : "") + (host.spare ? " spare" : "") +
    (host.drain || host.maintenance ? " person" : "") + (host.match ? "" : " dim") + (low ? " low" : "");
  element.firstChild.textContent = MARK[host.state];
  element.title = host.name + ": " + D.words[host.state][0] + (host.what ? ": " + host.what : "") +
    (host.person ? " (" +
    host.person + ")" : "");
  element.setAttribute("aria-label", element.title);
}
function buildFloor() {
  var floor = $("floor"), racks = [], loose = [], guests = {}, blocks = {}, block, box = null;
  hosts.forEach(function (host) {
    if (host.on >= 0) (guests[host.on] = guests[host.on] || []).push(host);
    else if (host.rack < 0) loose.push(host);
    else (racks[host.rack] = racks[host.rack] || []).push(host);
  });
  function slot(host) { return [host].concat(guests[host.index] || []).map(tile); }
  D.racks.forEach(function (rack, index) {
    if (!box || rack[2] !== block) {
      block = rack[2];
      if (block) floor.appendChild(make("h3", {text: block}));
      box = floor.appendChild(make("div", {"class": "racks"}));
    }
    var frame = make("div", {"class": "frame", style: "height: calc(var(--unit) * " + rack[1] + " + 2px)"});
    (racks[index] || []).sort(function (a, b) { return b.unit - a.unit; }).forEach(function (host) {
      frame.appendChild(make("div", {"class": "slot", style: "bottom: calc(var(--unit) * " + (host.unit - 1) +
        "); height: calc(var(--unit) * " + host.units + ")"}, slot(host)));
    });
    box.appendChild(make("div", {"class": "rack", "data-rack": index}, [make("h4", {text: rack[0], title: rack[0]}),
      frame]));
  });
  if (!D.racks.length) $("floor-title").textContent = "In no rack";
  if (loose.length) {
    if (D.racks.length) floor.appendChild(make("h3", {text: "In no rack of the blueprint"}));
    box = floor.appendChild(make("div", {"class": "loose"}));
    loose.forEach(function (host) { slot(host).forEach(function (element) { box.appendChild(element); }); });
  }
  floor.addEventListener("keydown", function (event) {
    var step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -1e9, End: 1e9}[event.key];
    if (!step) return;
    var shown = [].filter.call(floor.querySelectorAll(".tile:not(.dim)"), function (element) {
      return element.offsetParent; });
    var place = Math.min(shown.length - 1, Math.max(0, shown.indexOf(document.activeElement) + step));
    event.preventDefault();
    if (shown[place]) { reach(shown[place]); shown[place].focus(); }
  });
}
function reach(element) {
  var old = $("floor").querySelector('.tile[tabindex="0"]');
  if (old) old.tabIndex = -1;
  if (element) element.tabIndex = 0;
}
function cell(name, child) {
  var element = make("td", {"data-name": name || null});
  if (typeof child === "string") element.textContent = child; else element.appendChild(child);
  return element;
}
var natural = new Intl.Collator("en", {numeric: true}).compare;
function compare(a, b) {
  var down = query.sort[0] === "-", by = query.sort.replace("-", ""), order = 0;
  if (by === "state") order = a.level - b.level;
  else if (by === "rack") order = natural(a.place, b.place);
  else if (by === "seen" || by === "oldest") order = (b[by] === null ? -1 : b[by]) - (a[by] === null ? -1 : a[by]);
  else if (by !== "host") order = natural(a[by], b[by]);
  return (order || natural(a.name, b.name)) * (down ? -1 : 1);
}
function drawTable(listed) {
  var body = $("rows"), shown = query.all ? listed : listed.slice(0, ROWS);
  body.textContent = "";
  listed.sort(compare);
  shown = query.all ? listed : listed.slice(0, ROWS);
  shown.forEach(function (host) {
    var name = make("button", {type: "button", "class": "open", text: host.name, onclick: function () {
      open(host.index, name); }});
    body.appendChild(make("tr", {}, [cell("", mark(host.state)), cell("", name), cell("Place", host.place),
      cell("Group", host.group),
      cell("", host.what), cell("", host.person), cell("Oldest", host.data.length ? ago(host.oldest) : ""),
      cell("Last seen", seen(host))]));
  });
  $("all").hidden = shown.length === listed.length;
  $("all").textContent = "Show all " + listed.length;
  [].forEach.call(document.querySelectorAll("th"), function (head, index) {
    var by = COLUMNS[index];
    head.setAttribute("aria-sort", query.sort === by ? "ascending" : query.sort === "-" + by ? "descending" : "none");
  });
}
function draw() {
  var counts = {}, listed = [], racks = {}, filtered = query.q || query.state || query.group;
  hosts.forEach(function (host) {
    counts[host.state] = (counts[host.state] || 0) + 1;
    host.match = matches(host);
    drawTile(host);
    if (host.match) { listed.push(host); if (host.rack >= 0) racks[host.rack] = true; }
    if (host.match && host.on >= 0) racks[hosts[host.on].rack] = true;
  });
  [].forEach.call(document.querySelectorAll(".rack"), function (element) {
    element.hidden = !!filtered && !racks[element.getAttribute("data-rack")];
  });
  [].forEach.call(document.querySelectorAll(".loose .tile"), function (element) {
    element.hidden = element.classList.contains("dim"); });
  [].forEach.call($("states").children, function (chip) {
    var state = chip.getAttribute("data-state");
    chip.lastChild.textContent = (counts[state] || 0) + " " + D.words[state][counts[state] === 1 ? 0 : 1];
    chip.hidden = !counts[state];
    chip.setAttribute("aria-pressed", String(query.state.split(",").indexOf(state) >= 0));
  });
  $("count").textContent = filtered ? listed.length + " of " + hosts.length + " hosts" : hosts.length + " hosts";
  drawTable(listed);
  reach($("floor").querySelector(".tile:not(.dim)"));
  drawProofs();
  drawPanel();
}
function drawProofs() {
  var box = $("proofs");
  box.textContent = "";
  D.proofs.forEach(function (row) {
    var datum = datumOf(row[1]), state = stateOf(datum);
    box.appendChild(make("li", {"class": "bar"}, [mark(state), link(datum, row[0]),
      make("span", {"class": "soft", text: datum.text + ", written " + ago(datum.at)})]));
  });
  $("proofs-title").hidden = !D.proofs.length;
}
function link(datum, text) {
  return datum.page ? make("a", {href: "./" + D.pages + datum.page.split("/").map(encodeURIComponent).join("/"),
    text: text}) : null;
}
function drawPanel() {
  var panel = $("panel"), host = hosts.filter(function (each) { return each.name === query.host; })[0], linked = {};
  [].forEach.call(document.querySelectorAll(".tile.linked, .tile[aria-current]"), function (element) {
    element.classList.remove("linked");
    element.removeAttribute("aria-current");
  });
  panel.hidden = !host;
  panel.textContent = "";
  if (!host) return;
  panel.appendChild(make("button", {type: "button", "class": "close", "aria-label": "Close", text: "\\u00d7",
    onclick: shut}));
  panel.appendChild(make("h2", {text: host.name, tabindex: "-1"}));
  panel.appendChild(make("p", {"class": "soft", text: [host.group, host.place, seen(host) && "last seen " + seen(host)]
    .filter(Boolean).join(", ")}));
  if (host.person) panel.appendChild(make("p", {text: host.person}));
  host.data.slice().sort(function (a, b) {
    return S.indexOf(stateOf(a)) - S.indexOf(stateOf(b));
  }).forEach(function (datum) {
    var state = stateOf(datum);
    panel.appendChild(make("section", {}, [make("h3", {}, [mark(state), make("span", {text: datum.kind})]),
      make("p", {text: (state === datum.state ? "" : "too old to be known: ") + datum.text}),
      make("p", {"class": "soft", text: datum.at === null ? "never read" : "read " + ago(datum.at) + ", " +
        new Date(datum.at * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC"}),
      datum.details.length ? make("ul", {}, datum.details.map(function (text) { return make("li", {text: text});
        })) : null,
      link(datum, "Proof")]));
  });
  tiles[host.index].setAttribute("aria-current", "true");
  if (innerWidth >= 1024) tiles[host.index].scrollIntoView({block: "nearest"});
  host.links.forEach(function (each) { linked[each[0]] = each[1]; tiles[each[0]].classList.add("linked"); });
  if (host.links.length) {
    panel.appendChild(make("section", {}, [make("h3", {text: "Links"}), make("ul", {"class": "links"},
      host.links.map(function (each) {
      var far = hosts[each[0]], sick = host.sick[each[0]];
      return make("li", {}, [make("button", {type: "button", "class": sick ? "sick" : null, title: sick || null,
        onclick: function () { open(far.index, tiles[far.index]); }},
        [mark(far.state), make("span", {text: far.name + (each[1] > 1 ? " \\u00d7 " + each[1] : "")}),
        sick ? make("b", {text: "link differs"}) : null])]);
    }))]));
  }
}
function open(index, from) { back = from; set({host: hosts[index].name}); $("panel").querySelector("h2").focus(); }
function shut() { set({host: ""}); if (back && back.isConnected) back.focus(); }
function read() {
  var text = location.hash.slice(1), key;
  for (key in query) query[key] = key === "sort" ? "state" : "";
  text.split("&").forEach(function (pair) {
    var parts = pair.split("="), value;
    try { value = decodeURIComponent(parts.slice(1).join("=")); } catch (error) { return; }
    if (Object.prototype.hasOwnProperty.call(query, parts[0])) query[parts[0]] = value;
  });
  if (COLUMNS.indexOf(query.sort.replace("-", "")) < 0) query.sort = "state";
}
function set(changes) {
  var key, pairs = [], panelOnly = Object.keys(changes).join() === "host";
  for (key in changes) query[key] = changes[key];
  for (key in query) if (query[key] && !(key === "sort" && query[key] === "state")) pairs.push(key + "=" +
    encodeURIComponent(query[key]));
  history.replaceState(null, "", pairs.length ? "#" + pairs.join("&") : location.pathname + location.search);
  if (panelOnly) drawPanel(); else show();
}
function show() {
  var size = query.size || (hosts.length > 1200 ? "small" : hosts.length > 200 ||
    innerWidth < 768 ? "middle" : "large");
  $("floor").className = size;
  $("search").value = query.q; $("group").value = query.group; $("size").value = size;
  draw();
}
function start() {
  var groups = {}, timer;
  hosts.forEach(function (host) { groups[host.group] = true; });
  Object.keys(groups).sort().forEach(function (name) { $("group").appendChild(make("option", {value: name,
    text: name})); });
  S.forEach(function (state) {
    $("states").appendChild(make("button", {type: "button", "class": "chip", "data-state": state,
      onclick: function () {
      var chosen = query.state ? query.state.split(",") : [], place = chosen.indexOf(state);
      if (place < 0) chosen.push(state); else chosen.splice(place, 1);
      set({state: chosen.join(",")});
    }}, [mark(state), make("span")]));
  });
  HEADS.forEach(function (title, index) {
    $("heads").appendChild(make("th", {scope: "col"}, [make("button", {type: "button", text: title,
      onclick: function () {
      set({sort: query.sort === COLUMNS[index] ? "-" + COLUMNS[index] : COLUMNS[index]});
    }})]));
  });
  $("search").addEventListener("input", function () { clearTimeout(timer); timer = setTimeout(function () {
    set({q: $("search").value}); }, 150); });
  $("group").addEventListener("change", function () { set({group: $("group").value}); });
  $("size").addEventListener("change", function () { set({size: $("size").value}); });
  $("all").addEventListener("click", function () { set({all: "1"}); });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape" && query.host) shut();
    if (event.key === "/" && document.activeElement !== $("search")) { event.preventDefault(); $("search").focus(); }
  });
  window.addEventListener("hashchange", function () { read(); show(); });
  window.addEventListener("beforeprint", function () { set({all: "1"}); });
  setInterval(function () { judge(); draw(); }, 300000);
  read(); judge(); buildFloor(); show();
}
start();
})();
"""
