"use strict";
// What people touch: buttons, sliders, keys, and entities under the mouse or a finger. All ends in a call of the app.

const $ = id => document.getElementById(id);
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const capital = word => word[0].toUpperCase() + word.slice(1);
const kinds = ({ roles }) => String(roles); // policies that know the same roles share worlds
const KEYS = {
  " ": () => setRunning(!app.running),
  ".": () => stepOnce(),
  "n": () => startAgain(),
  "+": () => app.add(0),
  "-": () => app.remove(app.world.members(0).at(-1)),
  "d": () => app.disable(app.selected),
  "Delete": () => app.remove(app.selected),
  "t": () => turnTo(Number($("turn").value) + 30),
  "m": () => $("mirror").click(),
  "g": () => $("ghost").click(),
  "a": () => $("axes").click(),
  "v": () => $("attention").click(),
  "f": () => $("actions").click(),
};

const policies = JSON.parse($("data").textContent);
const sources = ["frame.js", "network.js"].map(name => $(name).textContent);
const app = new App(policies, sources, () => refresh());

function setRunning(on) {
  app.running = on;
  $("run").textContent = on ? "Pause" : "Run";
}

function stepOnce() {
  setRunning(false);
  app.wanted++;
}

function startAgain() {
  const { roles } = app.policy, counts = roles.map((_, role) => app.world.members(role).length);
  app.whenIdle(() => app.start(counts));
}

function turnTo(degrees) {
  $("turn").value = ((degrees + 180 + 720) % 360) - 180;
  let angle = (Number($("turn").value) * Math.PI) / 180;
  while (angle - app.angle > Math.PI) angle -= 2 * Math.PI;
  while (angle - app.angle < -Math.PI) angle += 2 * Math.PI;
  app.target = angle;
  invokeGhost();
}

/** Shows the ghost when the world is first turned or mirrored: it says what would have happened otherwise. */
function invokeGhost() {
  if (invokeGhost.done || app.world.count > 400) return;
  invokeGhost.done = true;
  if (!app.show.ghost) $("ghost").click();
}

function select(entity) {
  app.selected = entity;
  app.dirty = true;
  refresh();
}

/** Shows what the state is, wherever a number or a word on the page depends on it. */
function refresh() {
  const { policy, world, panels, selected } = app;
  const isAgent = selected >= 0 && world.role[selected] < policy.controlled;
  const chosen = selected < 0 ? "Drag anything. Tap an agent to choose it." : `Chosen: ${describe(selected)}`;
  $("selected").textContent = chosen;
  $("disable").disabled = !isAgent;
  $("disable").textContent = isAgent && world.disabled[selected] ? "Repair" : "Disable";
  $("remove").disabled = selected < 0 || (isAgent && panels[0].agents.length === 1);
  policy.roles.forEach((_, role) => {
    const output = $(`count-${role}`);
    if (output) output.textContent = world.members(role).length.toLocaleString("en");
  });
  $("radius").value = Math.min(app.radius, 3);
  $("seeing").textContent = Number.isFinite(app.radius) ? app.radius.toFixed(1) : "everything";
  $("blowing").textContent = app.wind ? app.wind.toFixed(1) : "none";
  $("shaking").textContent = app.noise ? app.noise.toFixed(1) : "none";
  $("angle").textContent = `${$("turn").value}°`;
  for (const note of document.querySelectorAll("[data-when]")) {
    const [what, encoder] = note.dataset.when.split(" ");
    note.hidden = !app.show[what] || (encoder && panels.every(panel => panel.policy.encoder !== encoder));
  }
  for (const button of $("choices").children)
    button.setAttribute("aria-pressed", panels.some(panel => panel.index === Number(button.value)));
  const agents = counts => String(counts.slice(0, policy.controlled));
  const here = agents(policy.roles.map((_, role) => world.members(role).length));
  for (const button of $("sizes").children)
    button.setAttribute("aria-pressed", agents(app.counts(Number(button.value))) === here);
  for (const button of $("roles").children) button.setAttribute("aria-pressed", Number(button.value) === app.steer);
  for (const panel of panels) panel.canvas.classList.toggle("steering", app.steer >= 0);
  $("panels").classList.toggle("haunted", app.show.ghost);
}

/** Names an entity. */
function describe(entity) {
  const role = app.world.role[entity], number = app.world.members(role).indexOf(entity) + 1;
  return `${app.policy.roles[role]} ${number}${app.world.disabled[entity] ? ", disabled" : ""}`;
}

/** Writes what changes as the worlds run. */
function report() {
  for (const { world, policy, figures } of app.panels) {
    const spread = policy.task.name === "spread";
    const done = spread ? `${world.covered().length} of ${plural(world.members(1).length, "landmark")} covered` : "";
    const touched = plural(world.touches, spread ? "collision" : "touch").replace("touchs", "touches");
    figures.textContent = [done, touched, `step ${world.time.toLocaleString("en")}`].filter(Boolean).join(" · ");
  }
  const differences = app.panels.filter(panel => panel.ghost).map(panel => app.difference(panel));
  const far = Math.max(...differences), apart = far < 1e-6 ? "coincide" : `are up to ${far.toFixed(6)} apart`;
  $("difference").textContent = differences.length
    ? `Run and ghost ${apart}.`
    : "The policy turns with the world: turn it while it runs.";
  const { frames, steps } = app.rates;
  const words = [`${frames.toFixed(0)} frames/s`, `${steps.toFixed(1)} steps/s`];
  if (frames) $("rates").textContent = [...words, `${(1000 * app.thinking).toFixed(0)} ms a step`].join(" · ");
}

/** Makes the canvas of a policy and listens to it. */
function makePanel(index) {
  const policy = policies[index], names = ["figure", "canvas", "figcaption", "canvas", "div", "b", "span", "small"];
  const [figure, canvas, caption, inset, words, title, figures, label] = names.map(tag => document.createElement(tag));
  title.textContent = policy.name;
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `the world of ${policy.name}; arrow keys choose an entity`);
  label.textContent = "◂ never turned";
  inset.setAttribute("role", "img");
  inset.setAttribute("aria-label", "the run that was never turned");
  words.append(title, figures, label);
  caption.append(inset, words);
  figure.append(canvas, caption);
  $("panels").append(figure);
  const panel = { canvas, figures, view: new View(canvas, inset) };
  canvas.onpointerdown = event => press(index, event);
  canvas.onpointermove = event => drag(index, event);
  canvas.onpointerup = canvas.onpointercancel = () => app.hold(-1);
  canvas.onkeydown = event => {
    const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!way) return;
    event.preventDefault();
    select((app.selected + way + app.world.count) % app.world.count);
  };
  return panel;
}

const panelAt = index => app.panels.find(panel => panel.index === index);

/** Takes hold of what lies under the pointer, if anything does. */
function press(index, event) {
  const { view, world, policy, canvas } = panelAt(index), [x, y] = view.toWorld(event.offsetX, event.offsetY);
  const reach = ((event.pointerType === "touch" ? 14 : 6) * view.dots) / view.unit;
  let best = -1, least = Infinity;
  for (let entity = 0; entity < world.count; entity++) {
    const size = policy.task.radius[world.role[entity]];
    const distance = Math.hypot(world.position[2 * entity] - x, world.position[2 * entity + 1] - y);
    // Small things lie on large ones, and come first. The arena's centre stays where it is.
    const rank = size + 1e-3 * distance;
    if (policy.task.reach[world.role[entity]] && distance < Math.max(size, reach) && rank < least)
      [best, least] = [entity, rank];
  }
  canvas.focus({ preventScroll: true });
  canvas.setPointerCapture(event.pointerId);
  select(best);
  if (best >= 0 && best !== app.steered(panelAt(index))) app.hold(best);
  else app.pointer = [x, y];
}

function drag(index, event) {
  const { view } = panelAt(index), place = view.toWorld(event.offsetX, event.offsetY);
  if (app.holding) app.move(app.selected, ...place);
  else app.pointer = place;
}

/** Shows or hides a policy; those with other roles cannot be shown beside it. */
function toggle(index) {
  let indices = app.panels.map(panel => panel.index);
  if (indices.includes(index)) indices = indices.filter(other => other !== index);
  else indices = [...indices.filter(other => kinds(policies[other]) === kinds(policies[index])), index];
  if (indices.length === 0) return;
  app.whenIdle(() => show(indices.sort((a, b) => a - b)));
}

function show(indices) {
  const before = app.panels.length ? kinds(app.policy) : null;
  $("panels").replaceChildren();
  app.choose(indices, makePanel);
  if (kinds(app.policy) !== before) makeTeam();
  refresh();
  report();
}

function button(parent, text, act, value) {
  const made = document.createElement("button");
  Object.assign(made, { type: "button", textContent: text, onclick: act, value: value ?? "" });
  parent.append(made);
  return made;
}

/** Makes the controls that depend on the roles there are. */
function makeTeam() {
  const { policy } = app, { roles, controlled, task } = policy;
  app.steer = -1;
  for (const id of ["sizes", "counts", "roles"]) $(id).replaceChildren();
  for (const agents of [...new Set([policy.trained, ...SIZES])].sort((a, b) => a - b)) {
    const counts = app.counts(agents), total = counts.slice(0, controlled).reduce((a, b) => a + b);
    const label = button($("sizes"), total.toLocaleString("en"), () => app.whenIdle(() => app.start(counts)), agents);
    label.title = counts.map((count, role) => plural(count, roles[role])).join(", ");
  }
  roles.forEach((role, at) => {
    if (!task.reach[at]) return;
    const [row, word, dot, count] = ["div", "span", "i", "output"].map(tag => document.createElement(tag));
    count.id = `count-${at}`;
    dot.style.background = policy.colours[at];
    word.append(dot, `${capital(role)}s`);
    row.append(word);
    button(row, "−", () => app.remove(app.world.members(at).at(-1) ?? -1)).ariaLabel = `one ${role} less`;
    row.append(count);
    button(row, "+", () => app.add(at)).ariaLabel = `one ${role} more`;
    $("counts").append(row);
  });
  const steer = role => () => {
    app.steer = role;
    app.pointer = null;
    refresh();
  };
  button($("roles"), "Nobody", steer(-1), -1);
  roles.slice(0, controlled).forEach((role, at) => button($("roles"), capital(role), steer(at), at));
  for (const text of document.querySelectorAll("[data-task]")) text.hidden = text.dataset.task !== task.name;
  const trained = policy.slots.slice(0, controlled).map((count, role) => plural(count, roles[role])).join(" and ");
  $("trained").textContent = trained;
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  app.theme = { dark: name === "dark", ...readTheme() };
}

/** Connects an input with what it sets. */
function bind(id, event, act) {
  $(id).addEventListener(event, () => {
    act($(id));
    app.dirty = true;
    refresh();
  });
}

bind("run", "click", () => setRunning(!app.running));
bind("step", "click", () => stepOnce());
bind("again", "click", () => startAgain());
bind("speed", "change", input => (app.speed = Number(input.value)));
bind("disable", "click", () => app.disable(app.selected));
bind("remove", "click", () => app.remove(app.selected));
bind("turn", "input", input => turnTo(Number(input.value)));
bind("mirror", "change", input => ((app.mirror = input.checked), invokeGhost()));
bind("ghost", "change", input => ((invokeGhost.done = true), app.whenIdle(() => (app.show.ghost = input.checked))));
bind("radius", "input", input => (app.radius = Number(input.value) < 3 ? Number(input.value) : Infinity));
bind("wind", "input", input => (app.wind = Number(input.value)));
bind("noise", "input", input => (app.noise = Number(input.value)));
bind("nearest", "change", input => (app.nearest = input.value === "" ? null : Number(input.value)));
for (const id of ["axes", "attention", "actions", "trails"])
  bind(id, "change", input => (app.show[id] = input.checked));
bind("theme", "click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

// What was clicked does not keep the keyboard: the space bar pauses, also after a click on a button.
document.addEventListener("click", event => event.detail > 0 && event.target.closest("button, input")?.blur());
document.addEventListener("keydown", event => {
  const own = event.key === " " ? "button, input, select, summary" : "select"; // what the key already does something to
  if (event.target.closest(own) || !KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  KEYS[event.key]();
  refresh();
});
policies.forEach((policy, index) => button($("choices"), policy.name, () => toggle(index), index));
$("policies").hidden = policies.length < 2;
const dark = matchMedia("(prefers-color-scheme: dark)");
setTheme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
show(policies.flatMap((policy, index) => (kinds(policy) === kinds(policies[0]) ? [index] : [])));
setInterval(report, 250);
requestAnimationFrame(function frame(now) {
  app.tick(now / 1000);
  requestAnimationFrame(frame);
});
