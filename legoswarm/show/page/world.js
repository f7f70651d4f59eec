"use strict";
// The particle world of legoswarm/tasks/worlds/particles.py, with people in it: entities come, go and are held.

/** Returns numbers from a normal distribution. */
function gauss() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

/** A matrix [a, b, c, d] that maps (x, y) to (a x + b y, c x + d y). */
const IDENTITY = [1, 0, 0, 1];
const turned = angle => [Math.cos(angle), -Math.sin(angle), Math.sin(angle), Math.cos(angle)];
const transposed = ([a, b, c, d]) => [a, c, b, d]; // of a rotation or reflection: its inverse
const mapped = ([a, b, c, d], x, y) => [a * x + b * y, c * x + d * y];
const times = ([a, b, c, d], [e, f, g, h]) => [a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h];

function mapAll(matrix, vectors) {
  for (let at = 0; at < vectors.length; at += 2)
    [vectors[at], vectors[at + 1]] = mapped(matrix, vectors[at], vectors[at + 1]);
}

const TRAIL = 25; // steps
const GRID = 2 ** -20; // about a millionth

/** One world of a task; `task` holds the constants of each role. */
class World {
  constructor(task) {
    Object.assign(this, { task, role: new Uint8Array(0), disabled: new Uint8Array(0), held: -1, time: 0, touches: 0, pairs: [] });
    Object.assign(this, { position: new Float64Array(0), velocity: new Float64Array(0) });
    this.forget();
  }

  get count() {
    return this.role.length;
  }

  /** Forgets actions, axes and where entities were: after a jump nothing is drawn in between. */
  forget() {
    this.before = this.position.slice();
    this.actions = new Float64Array(2 * this.count);
    this.frames = new Float64Array(4 * this.count);
    this.glance = null;
    this.trail = [];
    this.pairs = [];
  }

  /** Returns the entities of the roles that act, the first `controlled` ones. */
  agents(controlled) {
    return Array.from(this.role.keys()).filter(entity => this.role[entity] < controlled);
  }

  members(role) {
    return Array.from(this.role.keys()).filter(entity => this.role[entity] === role);
  }

  copy() {
    const { task, held, time, touches } = this, world = Object.assign(new World(task), { held, time, touches });
    for (const name of ["role", "position", "velocity", "disabled"]) world[name] = this[name].slice();
    world.forget();
    return world;
  }

  /** Puts an entity into the world, at rest. */
  add(role, x, y) {
    const longer = (array, ...more) => array.constructor.from([...array, ...more]);
    this.role = longer(this.role, role);
    this.disabled = longer(this.disabled, 0);
    this.position = longer(this.position, x, y);
    this.velocity = longer(this.velocity, 0, 0);
    this.forget();
  }

  remove(entity) {
    const shorter = (array, each) => array.filter((_, at) => Math.floor(at / each) !== entity);
    this.role = shorter(this.role, 1);
    this.disabled = shorter(this.disabled, 1);
    this.position = shorter(this.position, 2);
    this.velocity = shorter(this.velocity, 2);
    this.held = -1;
    this.forget();
  }

  place(entity, x, y) {
    this.position.set([x, y], 2 * entity);
    this.before.set([x, y], 2 * entity);
    this.velocity.set([0, 0], 2 * entity);
  }

  /** Turns or mirrors everything there is about the origin. */
  transform(matrix) {
    for (const vectors of [this.position, this.velocity, this.before, this.actions, this.frames, ...this.trail])
      mapAll(matrix, vectors);
  }

  near(one, other, reach) {
    const { position } = this;
    const dx = position[2 * one] - position[2 * other], dy = position[2 * one + 1] - position[2 * other + 1];
    return dx * dx + dy * dy < reach * reach;
  }

  /** Returns contact forces: 100 k log(1 + exp(-gap / k)) outwards, for all that is solid and touches. */
  contacts() {
    const { role, position, task } = this, force = new Float64Array(position.length);
    const { solid, radius, contact_force: strength, contact_margin: margin } = task;
    for (let one = 0; one < this.count; one++) {
      if (!solid[role[one]]) continue;
      for (let other = one + 1; other < this.count; other++) {
        if (!solid[role[other]]) continue;
        const dx = position[2 * one] - position[2 * other], dy = position[2 * one + 1] - position[2 * other + 1];
        const reach = radius[role[one]] + radius[role[other]] + 100 * margin; // beyond it the force is below 1e-44
        if (dx * dx + dy * dy > reach * reach) continue;
        const distance = Math.max(Math.hypot(dx, dy), 1e-12), gap = distance - (reach - 100 * margin);
        const depth = margin * (Math.max(-gap / margin, 0) + Math.log1p(Math.exp(-Math.abs(gap) / margin)));
        const push = (strength * depth) / distance;
        force[2 * one] += push * dx;
        force[2 * one + 1] += push * dy;
        force[2 * other] -= push * dx;
        force[2 * other + 1] -= push * dy;
      }
    }
    return force;
  }

  /** Takes one step under the actions of all entities; `gusts` are further forces. */
  step(actions, gusts) {
    const { role, position, velocity, task } = this, force = this.contacts();
    this.trail.push(position.slice());
    if (this.trail.length > TRAIL) this.trail.shift();
    this.before = position.slice();
    this.actions = actions;
    for (let entity = 0; entity < this.count; entity++) {
      const gain = task.acceleration[role[entity]], fastest = task.max_speed[role[entity]];
      if (gain === null) continue;
      const still = this.disabled[entity] || entity === this.held;
      for (let at = 2 * entity; at < 2 * entity + 2; at++) {
        const old = velocity[at];
        velocity[at] = still ? 0 : (1 - task.damping) * old + (gain * actions[at] + force[at] + gusts[at]) * task.dt;
        force[at] = old;
      }
      const speed = Math.hypot(velocity[2 * entity], velocity[2 * entity + 1]);
      const slower = fastest !== null && speed > fastest ? fastest / speed : 1;
      for (let at = 2 * entity; at < 2 * entity + 2; at++) {
        velocity[at] *= slower;
        if (!still) position[at] += (task.velocity_first ? velocity[at] : force[at]) * task.dt;
      }
    }
    this.time++;
    this.pairs = this.touching();
    this.touches += this.pairs.length;
  }

  /** Rounds positions and velocities of agents to GRID, along the axes that `matrix` maps the world's own ones to.
   *
   *  A crowd is chaotic: rounding errors grow in each step, and would part a turned run from its ghost within seconds,
   *  though every action turns with the world. Rounding along axes that turn as well removes them. */
  settle(matrix) {
    const back = transposed(matrix), round = value => Math.round(value / GRID) * GRID;
    for (const entity of this.role.keys()) {
      if (this.task.acceleration[this.role[entity]] === null) continue;
      for (const vectors of [this.position, this.velocity]) {
        const [x, y] = mapped(back, vectors[2 * entity], vectors[2 * entity + 1]);
        vectors.set(mapped(matrix, round(x), round(y)), 2 * entity);
      }
    }
  }

  /** Returns the pairs that the task counts: pursuers that touch evaders, or agents that collide. */
  touching() {
    const first = this.members(0), second = this.task.name === "tag" ? this.members(1) : first, { radius } = this.task;
    const reach = radius[0] + radius[this.task.name === "tag" ? 1 : 0], pairs = [];
    for (const one of first)
      for (const other of second)
        if ((second !== first || one < other) && this.near(one, other, reach)) pairs.push([one, other]);
    return pairs;
  }

  /** Returns the landmarks that lie under an agent. */
  covered() {
    const agents = this.members(0), reach = this.task.radius[0];
    return this.members(1).filter(landmark => agents.some(agent => this.near(agent, landmark, reach)));
  }
}

/** Returns a world with so many entities of each role, at rest; the arena's sides are 2 `scale` long. */
function startWorld(task, counts, scale) {
  const world = new World(task), role = [], position = [];
  counts.forEach((count, at) => {
    const reach = task.reach[at] && scale - 1 + task.reach[at];
    for (let entity = 0; entity < count; entity++) {
      role.push(at);
      position.push(...[0, 1].map(() => reach * (2 * Math.random() - 1)));
    }
  });
  Object.assign(world, { role: Uint8Array.from(role), position: Float64Array.from(position) });
  Object.assign(world, { velocity: new Float64Array(position.length), disabled: new Uint8Array(role.length) });
  world.forget();
  return world;
}
