"use strict";
// Workers that act for agents beside the page, so that it draws while they think. They run frame.js and network.js.

const WORKER = `
let policies = [], actors = [];
onmessage = ({ data }) => {
  if (data.policies) {
    policies = data.policies;
    actors = policies.map(readActors);
    return;
  }
  const { id, policy, scene, sight, agents, from, to, focus } = data;
  const found = decide(policies[policy], actors[policy], scene, sight, agents, from, to, focus);
  postMessage({ id, from, ...found }, [found.actions.buffer, found.frames.buffer]);
};`;

/** All who act. Without workers, which some browsers refuse to pages that are files, the page itself does it. */
class Team {
  constructor(policies, sources) {
    this.policies = policies;
    this.waiting = new Map();
    this.next = 0;
    this.workers = [];
    const address = URL.createObjectURL(new Blob([...sources, WORKER], { type: "text/javascript" }));
    const cores = navigator.hardwareConcurrency || 2;
    try {
      for (let at = 0; at < Math.min(cores, 8); at++) {
        const worker = new Worker(address);
        worker.onmessage = ({ data }) => this.take(data);
        worker.onerror = () => this.alone();
        worker.postMessage({ policies });
        this.workers.push(worker);
      }
    } catch {
      this.alone();
    }
  }

  /** Goes on without workers: what they were asked for is done here. */
  alone() {
    this.workers = [];
    for (const [id, { task }] of [...this.waiting]) this.take({ id, from: task.from, ...this.decide(task) });
  }

  decide({ policy, scene, sight, agents, from, to, focus }) {
    this.actors ??= this.policies.map(readActors);
    return decide(this.policies[policy], this.actors[policy], scene, sight, agents, from, to, focus);
  }

  take({ id, ...found }) {
    const { resolve } = this.waiting.get(id) ?? {};
    this.waiting.delete(id);
    resolve?.(found);
  }

  ask(task) {
    if (this.workers.length === 0) return Promise.resolve({ from: task.from, ...this.decide(task) });
    const id = this.next++;
    this.workers[id % this.workers.length].postMessage({ id, ...task });
    return new Promise(resolve => this.waiting.set(id, { task, resolve }));
  }

  /** Fills in actions and axes of a world's agents, and what the entity `focus` attends to; teams are shared out. */
  async think(policy, world, sight, focus) {
    const agents = world.agents(this.policies[policy].controlled), { role, position, velocity } = world;
    const shares = agents.length < 16 ? 1 : Math.max(this.workers.length, 1), each = Math.ceil(agents.length / shares);
    const asked = [];
    for (let from = 0; from < agents.length; from += each) {
      const to = Math.min(from + each, agents.length);
      asked.push(this.ask({ policy, scene: { role, position, velocity }, sight, agents, from, to, focus }));
    }
    const actions = new Float64Array(2 * world.count), frames = new Float64Array(4 * world.count);
    let glance = null;
    for (const found of await Promise.all(asked)) {
      for (let at = 0; at < found.actions.length / 2; at++) {
        actions.set(found.actions.subarray(2 * at, 2 * at + 2), 2 * agents[found.from + at]);
        frames.set(found.frames.subarray(4 * at, 4 * at + 4), 4 * agents[found.from + at]);
      }
      glance ??= found.glance;
    }
    return { actions, frames, glance };
  }
}
