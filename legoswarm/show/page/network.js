"use strict";
// LEGO's actor for one agent, in plain numbers: what legoswarm/deploy/actor.py computes for a whole team.

const EPSILON = 1e-5; // of the normalisation

/** out[r, c] = sum over k of a[r, k] b[c, k]; `At` is where a matrix begins, `By` how far apart its rows are.
 *
 *  Ten sums at a time, so that most numbers are in registers. What is left over at an edge is computed twice. */
function product(out, outAt, outBy, a, aAt, aBy, rows, b, bAt, bBy, columns, inner) {
  const last = columns - 1;
  for (let c = 0; c < columns; c += 5) {
    const c1 = Math.min(c + 1, last), c2 = Math.min(c + 2, last), c3 = Math.min(c + 3, last), c4 = Math.min(c + 4, last);
    const b0 = bAt + c * bBy, b1 = bAt + c1 * bBy, b2 = bAt + c2 * bBy, b3 = bAt + c3 * bBy, b4 = bAt + c4 * bBy;
    for (let r = 0; r < rows; r += 2) {
      const r1 = Math.min(r + 1, rows - 1), a0 = aAt + r * aBy, a1 = aAt + r1 * aBy;
      let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s04 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0, s14 = 0;
      for (let k = 0; k < inner; k++) {
        const x = a[a0 + k], y = a[a1 + k];
        const p = b[b0 + k], q = b[b1 + k], s = b[b2 + k], t = b[b3 + k], u = b[b4 + k];
        (s00 += x * p), (s01 += x * q), (s02 += x * s), (s03 += x * t), (s04 += x * u);
        (s10 += y * p), (s11 += y * q), (s12 += y * s), (s13 += y * t), (s14 += y * u);
      }
      const o0 = outAt + r * outBy, o1 = outAt + r1 * outBy;
      (out[o0 + c] = s00), (out[o0 + c1] = s01), (out[o0 + c2] = s02), (out[o0 + c3] = s03), (out[o0 + c4] = s04);
      (out[o1 + c] = s10), (out[o1 + c1] = s11), (out[o1 + c2] = s12), (out[o1 + c3] = s13), (out[o1 + c4] = s14);
    }
  }
}

/** An affine map; `weight` has a row for each output. */
class Affine {
  constructor(weight, bias, inputs) {
    Object.assign(this, { weight, bias, inputs, outputs: weight.length / inputs });
  }

  /** Maps `rows` rows of `x`, from row `xAt` on, into those of `out`. */
  apply(x, xAt, rows, out, outAt) {
    const { weight, bias, inputs, outputs } = this;
    product(out, outAt * outputs, outputs, x, xAt * inputs, inputs, rows, weight, 0, inputs, outputs, inputs);
    if (bias)
      for (let r = 0, at = outAt * outputs; r < rows; r++) for (let c = 0; c < outputs; c++) out[at++] += bias[c];
  }

  /** Returns this map of what `before` gives, whose mean over outputs is taken off first. */
  afterCentred(before) {
    const { inputs, outputs: width } = before, columns = inputs + 1; // the bias is one more column
    const centred = new Float64Array(columns * width);
    for (let i = 0; i < columns; i++) {
      const entry = k => (i < inputs ? before.weight[k * inputs + i] : before.bias[k]);
      let mean = 0;
      for (let k = 0; k < width; k++) mean += entry(k) / width;
      for (let k = 0; k < width; k++) centred[i * width + k] = entry(k) - mean;
    }
    const weight = new Float64Array(this.outputs * inputs), bias = new Float64Array(this.outputs);
    product(weight, 0, inputs, this.weight, 0, width, this.outputs, centred, 0, width, inputs, width);
    product(bias, 0, 1, this.weight, 0, width, this.outputs, centred, inputs * width, width, 1, width);
    return new Affine(weight, bias, inputs);
  }
}

/** Writes each row of `x` with mean 0 and variance 1 into `out`, if there is one; returns the last 1 / deviation. */
function normalise(x, rows, width, out) {
  let inverse = 0;
  for (let r = 0, at = 0; r < rows; r++, at += width) {
    let mean = 0, square = 0;
    for (let k = at; k < at + width; k++) mean += x[k];
    mean /= width;
    for (let k = at; k < at + width; k++) square += (x[k] - mean) * (x[k] - mean);
    inverse = 1 / Math.sqrt(square / width + EPSILON);
    if (out) for (let k = at; k < at + width; k++) out[k] = (x[k] - mean) * inverse;
  }
  return inverse;
}

function rectify(x, count) {
  for (let k = 0; k < count; k++) if (x[k] < 0) x[k] = 0;
}

/** The actor of one role. `weights` is the tree that deploy/page.py writes, with affine maps for leaves. */
class Actor {
  constructor(policy, weights) {
    Object.assign(this, { policy, ...weights, joint: policy.encoder === "joint", rows: 0 });
    this.width = this.last.outputs;
    // The first layer normalises what is affine in an entity's four features: its queries, keys and values are so too,
    // but for a factor, and need 4 multiplications instead of `width` for each number.
    if (policy.encoder !== "deepsets" && policy.depth > 0) {
      const qkv = at => this.layers[0][this.joint ? 0 : at].qkv;
      this.first = this.embed.map((map, at) => qkv(at).afterCentred(map));
      this.firstOwn = this.joint ? qkv(0).afterCentred(this.myself) : null;
    }
    this.parts = new Float64Array((1 + this.embed.length) * this.width);
    this.features = new Float64Array(Math.max(this.width, 2));
    this.own = new Float64Array(2);
    this.grow(32);
  }

  /** Makes room for so many rows. */
  grow(rows) {
    const width = this.width, numbers = count => new Float64Array(count);
    Object.assign(this, { rows, others: numbers(4 * rows), x: numbers(rows * width), normal: numbers(rows * width) });
    Object.assign(this, { qkv: numbers(3 * rows * width), mixed: numbers(rows * width), scores: numbers(rows * rows) });
    Object.assign(this, { values: numbers(rows * width), received: numbers(rows) });
  }

  /** Writes the action into `out`, the axes into `frame`; `glance[entity]` gets the attention, if there is one.
   *
   *  Of each role it looks at the `nearest`, or at all where that is 0. */
  act(vx, vy, seen, nearest, frame, out, glance) {
    const { policy, own, features, parts, width } = this;
    if (nearest > 0) for (const list of seen) list.keepNearest(nearest);
    makeFrame(policy, vx, vy, seen, frame);
    const [x0, x1, y0, y1, dx, dy] = frame;
    own[0] = vx * x0 + vy * x1;
    own[1] = vx * y0 + vy * y1;
    this.encode(seen, frame, glance);
    this.fuse.apply(parts, 0, 1, features, 0);
    for (const next of [this.last, this.head]) {
      rectify(features, width);
      normalise(features, 1, width, this.normal);
      next.apply(this.normal, 0, 1, features, 0);
    }
    let localX = features[0], localY = features[1];
    if (policy.leash > 0) {
      const distance = Math.hypot(dx, dy);
      const pull = policy.leash_gain * (Math.max(distance - policy.leash, 0) / Math.max(distance, policy.leash));
      localX += pull * (dx * x0 + dy * x1);
      localY += pull * (dx * y0 + dy * y1);
    }
    if (policy.squash > 0) {
      localX = policy.squash * Math.tanh(localX / policy.squash);
      localY = policy.squash * Math.tanh(localY / policy.squash);
    }
    out[0] = localX * x0 + localY * y0;
    out[1] = localX * x1 + localY * y1;
    limit(policy.limit, out);
  }

  /** Fills `parts`: the features of the agent itself, and for each role those of what is seen of it, pooled.
   *
   *  All roles and the agent are one set in the joint encoder; in the others each role is a set by itself. */
  encode(seen, frame, glance) {
    const { joint, width, parts, own } = this;
    const total = seen.reduce((sum, list) => sum + list.count, joint ? 1 : 0);
    if (total > this.rows) this.grow(Math.max(total, 2 * this.rows));
    if (glance) glance.fill(0);
    if (joint) this.myself.apply(own, 0, 1, this.x, 0);
    let row = joint ? 1 : 0;
    for (let role = 0; role < seen.length; role++) {
      this.describe(seen[role], frame, role, row);
      if (joint) row += seen[role].count;
      else {
        this.deeper(role, seen[role].count, seen, glance);
        this.pool(seen[role], role, 0, glance);
      }
    }
    if (joint) {
      this.deeper(0, total, seen, glance);
      row = 1;
      for (let role = 0; role < seen.length; row += seen[role++].count) this.pool(seen[role], role, row, glance);
      parts.set(this.x.subarray(0, width));
    } else {
      this.myself.apply(own, 0, 1, this.features, 0);
      rectify(this.features, width);
      normalise(this.features, 1, width, parts);
    }
  }

  /** Writes what is seen of a role, in the agent's frame and embedded, into rows from `row` on. */
  describe(list, frame, role, row) {
    const { others } = this, [x0, x1, y0, y1] = frame;
    for (let at = 0, k = 4 * row; at < list.count; at++) {
      others[k++] = list.px[at] * x0 + list.py[at] * x1;
      others[k++] = list.px[at] * y0 + list.py[at] * y1;
      others[k++] = list.vx[at] * x0 + list.vy[at] * x1;
      others[k++] = list.vx[at] * y0 + list.vy[at] * y1;
    }
    this.embed[role].apply(others, row, list.count, this.x, row);
  }

  /** Applies all layers of an encoder to the first `rows` rows. */
  deeper(encoder, rows, seen, glance) {
    const { x, normal, qkv, width } = this;
    if (glance) this.received.fill(0);
    for (let depth = 0; depth < this.layers.length && rows > 0; depth++) {
      const layer = this.layers[depth][encoder];
      if (!layer.qkv) {
        rectify(x, rows * width);
        layer.map.apply(x, 0, rows, normal, 0);
        x.set(normal.subarray(0, rows * width));
        continue;
      }
      if (depth === 0) this.firstLayer(encoder, rows, seen);
      else {
        normalise(x, rows, width, normal);
        layer.qkv.apply(normal, 0, rows, qkv, 0);
      }
      this.attend(layer.sigma, rows, glance);
    }
  }

  /** Computes the first layer's queries, keys and values from the features themselves. */
  firstLayer(encoder, rows, seen) {
    const { x, others, qkv, width } = this;
    if (this.joint) {
      this.firstOwn.apply(this.own, 0, 1, qkv, 0);
      for (let role = 0, row = 1; role < seen.length; row += seen[role++].count)
        this.first[role].apply(others, row, seen[role].count, qkv, row);
    } else this.first[encoder].apply(others, 0, rows, qkv, 0);
    for (let r = 0; r < rows; r++) {
      const inverse = normalise(x.subarray(r * width, (r + 1) * width), 1, width, null);
      for (let k = 3 * r * width; k < 3 * (r + 1) * width; k++) qkv[k] *= inverse;
    }
  }

  /** Adds sigma(heads of softmax(Q K^T) V) to `x`; each head has its columns for query, key and value side by side. */
  attend(sigma, rows, glance) {
    const { x, normal, qkv, mixed, values, scores, received, width } = this;
    const heads = this.policy.heads, size = width / heads, by = 3 * width;
    for (let head = 0; head < heads; head++) {
      const at = 3 * size * head;
      product(scores, 0, rows, qkv, at, by, rows, qkv, at + size, by, rows, size);
      for (let r = 0; r < rows; r++) softmax(scores, r * rows, rows);
      for (let c = 0; c < size; c++)
        for (let r = 0; r < rows; r++) values[c * rows + r] = qkv[r * by + at + 2 * size + c];
      product(mixed, head * size, width, scores, 0, rows, rows, values, 0, rows, size, rows);
      if (glance) {
        // The joint encoder has a row for the agent itself; with the other one, all rows look at each other.
        const looking = this.joint ? 1 : rows, share = 1 / (looking * heads * this.layers.length);
        for (let r = 0; r < looking; r++) for (let c = 0; c < rows; c++) received[c] += scores[r * rows + c] * share;
      }
    }
    sigma.apply(mixed, 0, rows, normal, 0);
    for (let k = 0; k < rows * width; k++) if (normal[k] > 0) x[k] += normal[k];
  }

  /** Writes the mean or the largest features of a list's rows into the part of its role; 0 where there are none. */
  pool(list, role, row, glance) {
    const { x, width, parts, received } = this, start = (1 + role) * width, largest = this.policy.pooling === "max";
    parts.fill(0, start, start + width);
    for (let at = 0; at < list.count; at++) {
      for (let k = 0; k < width; k++) {
        const value = x[(row + at) * width + k];
        if (!largest) parts[start + k] += value / list.count;
        else if (at === 0 || value > parts[start + k]) parts[start + k] = value;
      }
      if (glance) glance[list.entity[at]] = received[row + at];
    }
  }
}

/** Turns scores into weights that sum to 1. */
function softmax(scores, at, count) {
  let most = -Infinity, sum = 0;
  for (let k = at; k < at + count; k++) if (scores[k] > most) most = scores[k];
  for (let k = at; k < at + count; k++) sum += scores[k] = Math.exp(scores[k] - most);
  const share = 1 / sum;
  for (let k = at; k < at + count; k++) scores[k] *= share;
}

/** Shortens an action to the policy's disc, or clips it to its box. */
function limit({ kind, size }, action) {
  if (kind === "box") for (let k = 0; k < 2; k++) action[k] = Math.min(Math.max(action[k], -size), size);
  if (kind !== "disc") return;
  const shorter = Math.min(size / Math.hypot(action[0], action[1]), 1);
  if (shorter < 1) for (let k = 0; k < 2; k++) action[k] *= shorter;
}

/** Returns the actors of a policy's controlled roles, from what deploy/page.py wrote into the page. */
function readActors(policy) {
  const bytes = Uint8Array.from(atob(policy.weights), letter => letter.charCodeAt(0));
  const numbers = new Float32Array(bytes.buffer);
  const array = ([at, count]) => Float64Array.from(numbers.subarray(at, at + count));
  const revive = node => {
    if (Array.isArray(node)) return node.map(revive);
    if (node.weight) return new Affine(array(node.weight), node.bias && array(node.bias), node.inputs);
    return Object.fromEntries(Object.entries(node).map(([name, child]) => [name, revive(child)]));
  };
  return policy.actors.map(weights => new Actor(policy, revive(weights)));
}

/** Acts for agents `from` to `to` of the list `agents` of a scene's entities.
 *
 *  Returns for each of them an action and the axes of its frame, and for the entity `focus` what it attends to. */
function decide(policy, actors, scene, sight, agents, from, to, focus) {
  const seen = policy.roles.map(() => new Seen(scene.role.length));
  const out = new Float64Array(2), frame = new Float64Array(6);
  const actions = new Float64Array(2 * (to - from)), frames = new Float64Array(4 * (to - from));
  let glance = null;
  for (let at = from; at < to; at++) {
    const me = agents[at], [vx, vy] = scene.velocity.subarray(2 * me, 2 * me + 2);
    look(scene, sight.masks ? { ...sight, mask: sight.masks[at] } : sight, policy.controlled, me, seen);
    if (me === focus) glance = new Float64Array(scene.role.length);
    actors[scene.role[me]].act(vx, vy, seen, sight.nearest, frame, out, me === focus ? glance : null);
    actions.set(out, 2 * (at - from));
    frames.set(frame.subarray(0, 4), 4 * (at - from));
  }
  return { actions, frames, glance };
}
