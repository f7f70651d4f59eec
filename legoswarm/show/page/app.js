"use strict";
// The page's state and its clock: panels with a world each, what people change in all of them, and who acts when.

const SIZES = [6, 12, 32, 100, 1024]; // of teams, beside the one that a policy trained with
const USUAL = 8; // larger teams have a larger arena, in which there is as much room for each agent
const SENSING = 1.0; // what larger teams see to begin with: about as much as there was to see in training
const MIRROR = [-1, 0, 0, 1];

class App {
  constructor(policies, sources, changed) {
    Object.assign(this, { policies, changed, team: new Team(policies, sources), panels: [], edits: [], theme: null });
    Object.assign(this, { matrix: IDENTITY, angle: 0, target: 0, mirrored: false, mirror: false, scale: 1 });
    Object.assign(this, { running: true, speed: 1, wanted: 0, busy: false, dirty: false, thoughts: null });
    Object.assign(this, { radius: Infinity, nearest: null, wind: 0, noise: 0, steer: -1, pointer: null });
    Object.assign(this, { selected: -1, holding: false, clock: 1, last: 0, thinking: 0.01 });
    this.show = { axes: false, attention: false, actions: false, trails: true, ghost: false };
    this.rates = { frames: 0, steps: 0 };
    this.counted = { since: 0, frames: 0, steps: 0 };
  }

  get policy() {
    return this.panels[0].policy;
  }

  get world() {
    return this.panels[0].world;
  }

  /** Returns the agent whose sight is shown: the chosen one, or with attention the first. */
  get focus() {
    const { agents } = this.panels[0];
    return agents.includes(this.selected) ? this.selected : this.show.attention ? agents[0] : -1;
  }

  colour(policy, role) {
    return this.theme.dark ? lighter(policy.colours[role], 0.35) : policy.colours[role];
  }

  /** Returns so many agents, and of other roles as many as belong to them. */
  counts(agents) {
    const { slots, controlled, task } = this.policy, trained = slots.slice(0, controlled).reduce((a, b) => a + b);
    const counts = slots.map((count, role) => (task.reach[role] ? Math.round((count * agents) / trained) : count));
    return counts.map((count, role) => (role < controlled ? Math.max(count, 1) : count));
  }

  /** Shows some policies, which know the same roles, side by side; all begin alike. */
  choose(indices, panelOf) {
    const before = this.panels[0];
    this.panels = indices.map(index => ({ index, policy: this.policies[index], ...panelOf(index) }));
    if (before && String(before.policy.roles) === String(this.policy.roles)) this.spreadOut(before.world);
    else this.start(this.counts(this.policy.task.name === "spread" ? 6 : this.policy.trained));
  }

  /** Gives each panel a copy of a world, with the physics of its own policy. */
  spreadOut(world) {
    for (const panel of this.panels) {
      Object.assign(panel, { world: world.copy(), ghost: null });
      panel.world.task = panel.policy.task;
    }
    this.renew();
  }

  /** Begins anew with so many entities of each role. */
  start(counts) {
    const agents = counts.slice(0, this.policy.controlled).reduce((a, b) => a + b);
    const scale = Math.max(1, Math.sqrt(agents / USUAL));
    if (scale !== this.scale && agents > 2 * USUAL) this.radius = SENSING;
    else if (this.scale > 1 && scale === 1) this.radius = Infinity;
    this.scale = scale;
    this.selected = -1;
    const world = startWorld(this.policy.task, counts, scale);
    world.transform(this.matrix);
    this.spreadOut(world);
  }

  /** Brings in line with the worlds whatever depends on them. */
  renew() {
    for (const panel of this.panels) {
      panel.agents = panel.world.agents(panel.policy.controlled);
      if (!this.show.ghost) panel.ghost = null;
      else if (!panel.ghost) {
        panel.ghost = panel.world.copy();
        panel.ghost.transform(transposed(this.matrix));
      }
    }
    if (this.selected >= this.world.count) this.selected = -1;
    this.dirty = true;
    this.changed();
  }

  /** Does something to worlds, now or when the step under way is done. */
  whenIdle(action) {
    this.edits.push(action);
    if (!this.busy) this.flush();
  }

  flush() {
    for (const action of this.edits.splice(0)) action();
    this.renew();
  }

  /** Changes every world; `change` gets a world and the map from the page's directions to those of the world. */
  edit(change) {
    this.whenIdle(() => {
      for (const { world, ghost } of this.panels) {
        change(world, IDENTITY);
        if (ghost) change(ghost, transposed(this.matrix));
      }
    });
  }

  add(role) {
    const reach = this.scale - 1 + this.policy.task.reach[role];
    const place = [0, 1].map(() => reach * (2 * Math.random() - 1));
    this.edit((world, matrix) => world.add(role, ...mapped(matrix, ...place)));
  }

  /** Removes an entity; the last one that could act stays. */
  remove(entity) {
    if (entity < 0 || (this.panels[0].agents.length === 1 && this.panels[0].agents[0] === entity)) return;
    this.selected = -1;
    this.edit(world => world.remove(entity));
  }

  disable(entity) {
    if (!this.panels[0].agents.includes(entity)) return;
    this.edit(world => (world.disabled[entity] = 1 - world.disabled[entity]));
  }

  hold(entity) {
    this.holding = entity >= 0;
    for (const { world, ghost } of this.panels) for (const each of [world, ghost]) if (each) each.held = entity;
  }

  move(entity, x, y) {
    for (const { world, ghost } of this.panels) {
      world.place(entity, x, y);
      ghost?.place(entity, ...mapped(transposed(this.matrix), x, y));
    }
    this.dirty = true;
  }

  /** Turns and mirrors the whole world as it is at this moment; the ghost stays as it was. */
  orient(angle, mirrored) {
    const matrix = times(turned(angle), mirrored ? MIRROR : IDENTITY), change = times(matrix, transposed(this.matrix));
    for (const { world } of this.panels) world.transform(change);
    Object.assign(this, { angle, mirrored, matrix, dirty: true });
  }

  /** Returns how far a panel's run is from the ghost at most. */
  difference({ world, ghost, agents }) {
    let most = 0;
    for (const entity of agents) {
      const [x, y] = mapped(this.matrix, ghost.position[2 * entity], ghost.position[2 * entity + 1]);
      most = Math.max(most, Math.hypot(x - world.position[2 * entity], y - world.position[2 * entity + 1]));
    }
    return most;
  }

  /** Returns the entity that a person steers in a panel: the first one of its role that works, or -1. */
  steered({ world }) {
    return this.steer < 0 ? -1 : (world.members(this.steer).find(entity => !world.disabled[entity]) ?? -1);
  }

  sight(policy) {
    const { task } = policy, blocker = task.occlusion ? policy.roles.indexOf("obstacle") : -1;
    const radius = Math.min(this.radius, policy.sensing ?? Infinity);
    return { radius, nearest: this.nearest ?? policy.nearest, blocker, size: task.radius[blocker] ?? 0 };
  }

  /** Asks for the actions of everybody. */
  async think() {
    this.busy = true;
    this.dirty = false;
    const began = performance.now(), asked = [];
    for (const { index, policy, world, ghost } of this.panels)
      for (const each of [world, ghost])
        if (each) asked.push(this.team.think(index, each, this.sight(policy), each === ghost ? -1 : this.focus));
    const thoughts = await Promise.all(asked);
    this.thinking += 0.2 * ((performance.now() - began) / 1000 - this.thinking);
    this.thoughts = thoughts;
  }

  /** Takes a step with what was thought; or, with `only`, shows what was thought and takes none. */
  apply(only) {
    const thoughts = this.thoughts.values(), { wind, noise, matrix } = this;
    const gusts = Float64Array.from({ length: 2 * this.world.count }, (_, at) => (at % 2 ? 0 : wind) + noise * gauss());
    for (const panel of this.panels)
      for (const world of [panel.world, panel.ghost]) {
        if (!world) continue;
        const { actions, frames, glance } = thoughts.next().value, own = this.steered(panel);
        Object.assign(world, { frames, glance });
        if (only) continue;
        const here = world === panel.ghost ? IDENTITY : matrix, pushes = gusts.slice();
        mapAll(here, pushes);
        if (own >= 0) this.drive(world, own, times(here, transposed(matrix)), panel.policy, actions);
        world.step(actions, pushes);
        world.settle(here);
      }
    this.thoughts = null;
    this.busy = false;
    if (only) return;
    this.clock -= 1;
    this.counted.steps++;
    this.wanted = Math.max(this.wanted - 1, 0);
  }

  /** Writes the action that takes an entity to the pointer, as fast as the policy's limit allows. */
  drive(world, entity, matrix, policy, actions) {
    const target = this.pointer ? mapped(matrix, ...this.pointer) : null, { task } = policy;
    const gain = task.acceleration[world.role[entity]], fastest = task.max_speed[world.role[entity]] ?? 1;
    const place = world.position.subarray(2 * entity), old = world.velocity.subarray(2 * entity), action = [0, 0];
    if (target) {
      const way = [target[0] - place[0], target[1] - place[1]], length = Math.hypot(...way) || 1;
      const speed = Math.min(length / (2 * task.dt), fastest);
      for (const k of [0, 1]) action[k] = ((way[k] / length) * speed - (1 - task.damping) * old[k]) / (gain * task.dt);
      limit(policy.limit, action);
    }
    actions.set(action, 2 * entity);
  }

  /** Does what is due at a moment in seconds, and draws. */
  tick(now) {
    const passed = now - this.last, { dt } = this.policy.task;
    this.last = now;
    const period = Math.max(dt / this.speed, 1.05 * this.thinking), lead = (this.thinking + 0.017) / period;
    this.clock = Math.min(this.clock + passed / period, 1.5);
    if (this.thoughts && this.edits.length) {
      this.thoughts = null; // they are of the world before the edit
      this.busy = false;
    }
    if (this.thoughts && !(this.running || this.wanted > 0)) this.apply(true);
    else if (this.thoughts && this.clock >= 1) this.apply(false);
    if (!this.busy) {
      if (this.edits.length) this.flush();
      if (this.target !== this.angle || this.mirrored !== this.mirror) {
        const most = Math.PI / 45, rest = this.target - this.angle;
        this.orient(Math.abs(rest) < most ? this.target : this.angle + most * Math.sign(rest), this.mirror);
      }
      const due = this.running || this.wanted > 0;
      if (due ? this.clock >= 1 - lead : this.dirty) this.think();
    }
    for (const panel of this.panels) panel.view.draw(panel, this, Math.min(this.clock, 1));
    this.count(now);
  }

  count(now) {
    const { counted } = this, passed = now - counted.since;
    counted.frames++;
    if (passed < 1) return;
    this.rates = { frames: counted.frames / passed, steps: counted.steps / passed };
    this.counted = { since: now, frames: 0, steps: 0 };
  }
}
