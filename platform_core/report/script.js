(function () {
  "use strict";
  document.documentElement.classList.add("js");
  document.addEventListener("DOMContentLoaded", function () {
    var $ = function (id) { return document.getElementById(id); };
    var table = $("t"), bodies = Array.prototype.slice.call(table.tBodies);
    var heads = Array.prototype.slice.call(table.tHead.querySelectorAll("th[data-c]"));
    var chips = Array.prototype.slice.call(document.querySelectorAll(".chip[data-s]"));
    var all = $("all"), query = $("q"), database = $("d"), owner = $("o"), order = $("s"), shown = $("shown"), none = $("none");
    var column = 0, falling = false, writing = false;
    var rows = bodies.map(function (body) {
      var keys = body.dataset.k.split("|").map(function (text) { return text === "" ? null : Number(text); });
      return { body: body, keys: keys, name: body.querySelector(".nm").textContent, state: body.dataset.s,
               database: body.dataset.d, owners: body.dataset.o.split(" "), text: body.textContent.toLowerCase() };
    });

    rows.forEach(function (row, number) {
      var button = row.body.querySelector(".nm"), details = row.body.querySelector(".m");
      details.id = "m" + number;
      button.setAttribute("aria-controls", details.id);
      button.setAttribute("aria-expanded", "false");
    });
    // Some browsers drop the roles of table elements whose CSS display is changed, as on narrow screens.
    [["#t", "table"], ["#t>thead,#t>tbody", "rowgroup"], ["#t>*>tr", "row"], ["#t>thead th", "columnheader"],
     ["#t>tbody>tr>th", "rowheader"], ["#t>tbody>tr>td", "cell"]].forEach(function (pair) {
      document.querySelectorAll(pair[0]).forEach(function (element) { element.setAttribute("role", pair[1]); });
    });

    function compare(a, b) {
      if (column === "name") return (falling ? -1 : 1) * (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
      var x = a.keys[column], y = b.keys[column];
      if (x === null || y === null) return (x === null) - (y === null) || a.keys[0] - b.keys[0];  // unknown values last
      return (falling ? y - x : x - y) || a.keys[0] - b.keys[0];
    }
    function sort() {
      rows.sort(compare);
      var last = document.createDocumentFragment();
      rows.forEach(function (row) { last.appendChild(row.body); });
      table.appendChild(last);
      heads.forEach(function (head) {
        var mine = head.dataset.c === String(column);
        head.setAttribute("aria-sort", mine ? (falling ? "descending" : "ascending") : "none");
      });
      order.value = column + (falling ? "-" : "+");
    }
    function filter() {
      var words = query.value.toLowerCase().split(/\s+/).filter(Boolean), count = 0;
      var states = chips.filter(function (chip) { return chip.getAttribute("aria-pressed") === "true"; })
        .map(function (chip) { return chip.dataset.s; });
      rows.forEach(function (row) {
        var visible = (!states.length || states.indexOf(row.state) >= 0) && (!database.value || row.database === database.value)
          && (!owner.value || row.owners.indexOf(owner.value) >= 0)
          && words.every(function (word) { return row.text.indexOf(word) >= 0; });
        row.body.hidden = !visible;
        count += visible;
      });
      all.setAttribute("aria-pressed", String(!states.length));
      none.hidden = count > 0;
      shown.textContent = count === rows.length ? rows.length + " tables" : count + " of " + rows.length + " tables";
      remember(states);
    }
    // The address keeps filters and order, so that a link shows the same view. Its text is only compared, never written to the page.
    function remember(states) {
      var parts = new URLSearchParams();
      if (query.value) parts.set("q", query.value);
      if (database.value) parts.set("database", database.selectedOptions[0].textContent);
      if (owner.value) parts.set("owner", owner.selectedOptions[0].textContent);
      if (states.length) parts.set("state", chips.filter(function (chip) { return states.indexOf(chip.dataset.s) >= 0; })
        .map(function (chip) { return chip.dataset.n; }).join(","));
      if (column !== 0 || falling) parts.set("sort", order.value);
      writing = true;
      try { history.replaceState(null, "", "#" + parts.toString()); } catch (error) { /* not allowed for some local files */ }
      writing = false;
    }
    function choose(select, text) {
      var option = Array.prototype.find.call(select.options, function (item) { return item.value && item.textContent === text; });
      select.value = option ? option.value : "";
    }
    function recall() {
      if (writing) return;
      var parts = new URLSearchParams(location.hash.slice(1)), states = (parts.get("state") || "").split(",");
      query.value = parts.get("q") || "";
      choose(database, parts.get("database"));
      choose(owner, parts.get("owner"));
      chips.forEach(function (chip) { chip.setAttribute("aria-pressed", String(states.indexOf(chip.dataset.n) >= 0)); });
      var wanted = Array.prototype.find.call(order.options, function (item) { return item.value === parts.get("sort"); });
      take(wanted ? wanted.value : "0+");
    }
    function take(text) {
      var name = text.slice(0, -1);
      column = name === "name" ? name : Number(name);
      falling = text.slice(-1) === "-";
      sort();
      filter();
    }
    function toggle(body, open) {
      body.classList.toggle("open", open);
      body.querySelector(".nm").setAttribute("aria-expanded", String(open));
    }

    heads.forEach(function (head) {
      head.querySelector("button").addEventListener("click", function () {
        var name = head.dataset.c, first = head.dataset.f || "+", now = head.getAttribute("aria-sort");
        var next = now === "none" ? first : now === "ascending" ? "-" : "+";
        take(name + next);
      });
    });
    table.addEventListener("click", function (event) {
      var button = event.target.closest(".nm");
      if (button) toggle(button.closest("tbody"), button.getAttribute("aria-expanded") !== "true");
    });
    chips.forEach(function (chip) {
      chip.addEventListener("click", function () {
        chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
        filter();
      });
    });
    all.addEventListener("click", function () {
      chips.forEach(function (chip) { chip.setAttribute("aria-pressed", "false"); });
      filter();
    });
    order.addEventListener("change", function () { take(order.value); });
    [database, owner].forEach(function (select) { select.addEventListener("change", filter); });
    query.addEventListener("input", filter);
    $("expand").addEventListener("click", function () {
      var seen = rows.filter(function (row) { return !row.body.hidden; });
      var open = !seen.every(function (row) { return row.body.classList.contains("open"); });
      seen.forEach(function (row) { toggle(row.body, open); });
    });
    window.addEventListener("hashchange", recall);
    recall();
  });
})();
