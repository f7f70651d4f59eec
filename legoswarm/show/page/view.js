"use strict";
// Draws one panel: a world between its last two states, and what people asked to see of it.

const MARGIN = 1.3; // the view shows so much more than the arena
const MANY = 200; // larger teams leave no trails
const TINY = 5; // CSS pixels: smaller discs have no edge
const TINTS = ["paper", "ink", "faint", "line", "accent", "alarm", "axis-x", "axis-y"];

/** Returns the page's colours, which its style sheet has for light and dark. */
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(TINTS.map(name => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** Returns a colour of the form #rrggbb, mixed with white. */
function lighter(colour, share) {
  const parts = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
  return `rgb(${parts.map(part => Math.round(part + share * (255 - part))).join(" ")})`;
}

/** A canvas on which one draws in the world's units, y upwards; widths and gaps are CSS pixels. */
class Pen {
  constructor(canvas) {
    this.pen = canvas.getContext("2d");
  }

  /** Sets where the world's origin is, in dots of the canvas, and how many of them make a unit and a CSS pixel. */
  aim(left, top, unit, dots) {
    Object.assign(this, { left, top, unit, dots });
  }

  ink(colour, width, alpha = 1, dash = []) {
    Object.assign(this.pen, { strokeStyle: colour, lineWidth: width * this.dots, globalAlpha: alpha });
    this.pen.setLineDash(dash.map(part => part * this.dots));
  }

  fill(colour, alpha) {
    Object.assign(this.pen, { fillStyle: colour, globalAlpha: alpha });
    this.pen.fill();
  }

  disc([x, y], radius, gap = 0) {
    this.pen.beginPath();
    const size = Math.max(radius * this.unit, 1.2 * this.dots) + gap * this.dots;
    this.pen.arc(this.left + x * this.unit, this.top - y * this.unit, size, 0, 2 * Math.PI);
  }

  path(...points) {
    this.pen.beginPath();
    for (const [x, y] of points) this.pen.lineTo(this.left + x * this.unit, this.top - y * this.unit);
    this.pen.stroke();
  }

  arrow([x, y], dx, dy) {
    const length = Math.hypot(dx, dy), tip = Math.min(0.3, (7 * this.dots) / this.unit / (length || 1));
    const barb = side => [x + dx - tip * (dx + side * dy), y + dy - tip * (dy - side * dx)];
    this.path([x, y], [x + dx, y + dy]);
    this.path(barb(-0.6), [x + dx, y + dy], barb(0.6));
  }

  /** Writes words over a place, or where the canvas ends beside it. */
  text(words, [x, y], down, colour) {
    const { pen, dots } = this, font = `600 ${12 * dots}px system-ui, sans-serif`;
    Object.assign(pen, { fillStyle: colour, globalAlpha: 1, font, textAlign: "center" });
    const { width, height } = pen.canvas, half = pen.measureText(words).width / 2;
    const left = Math.min(Math.max(this.left + x * this.unit, half), width - half);
    const top = Math.min(Math.max(this.top - y * this.unit + down * dots, 12 * dots), height);
    pen.fillText(words, left, top);
  }
}

/** Gives a square canvas as many dots as its place on the screen has; returns how many a side has. */
function resize(canvas, dots) {
  const side = Math.round(canvas.clientWidth * dots);
  if (canvas.width !== side || canvas.height !== side) canvas.width = canvas.height = side;
  return side;
}

class View {
  constructor(canvas, inset) {
    Object.assign(this, { canvas, inset, pen: new Pen(canvas), small: new Pen(inset), half: MARGIN });
  }

  /** Fits the canvas to its place on the screen, and the view to the world unless somebody holds on to it. */
  fit(world, scale, holding) {
    const dots = window.devicePixelRatio || 1, side = resize(this.canvas, dots);
    let far = MARGIN * scale;
    for (const value of world.position) far = Math.max(far, 1.08 * Math.abs(value));
    far = Math.min(far, 2 * MARGIN * scale);
    if (!holding) this.half = this.scale === scale ? this.half + 0.1 * (far - this.half) : far;
    Object.assign(this, { scale, dots, unit: side / 2 / this.half }); // dots for each unit of length
    this.pen.aim(side / 2, side / 2, this.unit, dots);
  }

  /** Returns where a place on the canvas, in CSS pixels, lies in the world. */
  toWorld(x, y) {
    const middle = this.canvas.clientWidth / 2, unit = this.unit / this.dots;
    return [(x - middle) / unit, (middle - y) / unit];
  }

  /** Draws a panel as `app` says; `share` tells how much of the last step to show. */
  draw(panel, app, share) {
    const { pen, canvas } = this, { world, ghost, policy, agents } = panel;
    const { theme, show, matrix, selected, focus } = app;
    const place = (entity, from = world) => [0, 1].map(k => {
      const before = from.before[2 * entity + k];
      return before + share * (from.position[2 * entity + k] - before);
    });
    const radius = entity => policy.task.radius[world.role[entity]];
    const steered = app.steered(panel), touching = new Set(world.pairs.flat());
    const colour = entity => (world.disabled[entity] ? theme.faint : app.colour(policy, world.role[entity]));
    this.fit(world, app.scale, app.holding);
    pen.pen.fillStyle = theme.paper;
    pen.pen.globalAlpha = 1;
    pen.pen.fillRect(0, 0, canvas.width, canvas.height);
    this.drawArena(pen, matrix, app.scale, theme);
    if (focus >= 0 && Number.isFinite(app.radius)) {
      pen.ink(theme.accent, 1.2, 0.9, [5, 4]);
      pen.disc(place(focus), app.radius);
      pen.pen.stroke();
      pen.fill(theme.accent, 0.06);
    }
    if (show.trails && agents.length <= MANY)
      for (const entity of agents) {
        pen.ink(colour(entity), 1.5, 0.35);
        pen.path(...world.trail.map(past => past.subarray(2 * entity, 2 * entity + 2)), place(entity));
      }
    // What does not act: solid things lie below agents, others on them.
    const drawThings = solid => {
      for (let entity = 0; entity < world.count; entity++) {
        if (world.role[entity] < policy.controlled || policy.task.solid[world.role[entity]] !== solid) continue;
        pen.disc(place(entity), radius(entity));
        pen.fill(colour(entity), 1);
      }
    };
    drawThings(true);
    if (show.attention && world.glance && focus >= 0) {
      const most = world.glance.reduce((a, b) => Math.max(a, b), 1e-9);
      world.glance.forEach((weight, entity) => {
        if (weight <= 0.02 * most) return;
        pen.ink(theme.accent, 1 + (6 * weight) / most, 0.15 + (0.65 * weight) / most);
        pen.path(place(focus), place(entity));
      });
    }
    for (const entity of agents) {
      const marked = touching.has(entity) || entity === steered, [x, y] = place(entity), arm = 0.45 * radius(entity);
      const tiny = radius(entity) * this.unit < TINY * this.dots; // an edge would take longer to draw than the disc
      pen.disc([x, y], radius(entity));
      pen.fill(colour(entity), tiny ? 0.75 : 0.38);
      pen.ink(touching.has(entity) ? theme.alarm : colour(entity), marked ? 3 : 1.5);
      if (marked || !tiny) pen.pen.stroke();
      if (world.disabled[entity])
        for (const side of [-arm, arm]) pen.path([x - arm, y - side], [x + arm, y + side]);
    }
    drawThings(false);
    pen.ink(theme.ink, 1.4, 0.85, [3, 3]);
    for (const entity of ghost ? agents : []) {
      pen.disc(mapped(matrix, ...place(entity, ghost)), radius(entity), 4);
      pen.pen.stroke();
    }
    for (const entity of show.axes || show.actions ? agents : []) {
      const at = place(entity), size = Math.max(1.7 * radius(entity), (10 * this.dots) / this.unit);
      const [x0, x1, y0, y1] = world.frames.subarray(4 * entity, 4 * entity + 4).map(value => size * value);
      if (show.axes) {
        pen.ink(theme["axis-x"], 2);
        pen.arrow(at, x0, x1);
        pen.ink(theme["axis-y"], 2);
        pen.path(at, [at[0] + y0, at[1] + y1]);
      }
      if (show.actions && !world.disabled[entity]) {
        pen.ink(theme.ink, 1.6, 0.9);
        pen.arrow(at, 0.06 * world.actions[2 * entity], 0.06 * world.actions[2 * entity + 1]);
      }
    }
    if (selected >= 0) {
      pen.ink(theme.accent, 2.5);
      pen.disc(place(selected), radius(selected), 5);
      pen.pen.stroke();
    }
    if (steered >= 0) pen.text("you", place(steered), -radius(steered) * (this.unit / this.dots) - 6, theme.ink);
    if (app.wind > 0) {
      const dot = this.dots / this.unit, at = this.half - 26 * dot, [dx, dy] = mapped(matrix, 26 * dot, 0);
      pen.ink(theme.ink, 2.2, 0.8);
      pen.arrow([at - 0.5 * dx, at - 0.5 * dy], dx, dy);
      pen.text("wind", [at, at], 30, theme.ink);
    }
    if (ghost) this.drawInset(panel, app);
  }

  /** Draws the edge of the arena and a grid in it, turned as the world is. */
  drawArena(pen, matrix, scale, theme) {
    const steps = scale > 4 ? 8 : 4;
    for (let at = 0; at <= steps; at++) {
      const place = scale * ((2 * at) / steps - 1), edge = at === 0 || at === steps;
      pen.ink(theme.line, edge ? 1.5 : 0.75, edge ? 1 : 0.7);
      pen.path(mapped(matrix, place, -scale), mapped(matrix, place, scale));
      pen.path(mapped(matrix, -scale, place), mapped(matrix, scale, place));
    }
  }

  /** Draws the run that was never turned, as it is, in the small picture below the world. */
  drawInset({ policy, ghost }, app) {
    const { small, inset, half, dots } = this, side = resize(inset, dots);
    small.pen.clearRect(0, 0, side, side);
    small.aim(side / 2, side / 2, side / 2 / half, dots);
    this.drawArena(small, IDENTITY, app.scale, app.theme);
    for (let entity = 0; entity < ghost.count; entity++) {
      small.disc(ghost.position.subarray(2 * entity, 2 * entity + 2), policy.task.radius[ghost.role[entity]]);
      small.fill(ghost.disabled[entity] ? app.theme.faint : app.colour(policy, ghost.role[entity]), 1);
    }
  }
}
