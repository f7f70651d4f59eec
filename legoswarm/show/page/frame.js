"use strict";
// What an agent sees, and the frame in which it describes that: the rules of legoswarm/frames/canonical.py.

const SAME = 1e-4; // share of a squared distance by which another must be less to count as less (legoswarm/layout.py)

/** The others of one role that an agent sees: positions relative to it, velocities, and which entities they are. */
class Seen {
  constructor(room) {
    this.count = 0;
    this.entity = new Int32Array(room);
    for (const name of ["px", "py", "vx", "vy", "square"]) this[name] = new Float64Array(room);
  }

  add(entity, px, py, vx, vy) {
    const at = this.count++;
    this.entity[at] = entity;
    this.px[at] = px;
    this.py[at] = py;
    this.vx[at] = vx;
    this.vy[at] = vy;
    this.square[at] = px * px + py * py;
  }

  /** Keeps those of the `count` nearest that are nearer than the one after them: of several at one distance none. */
  keepNearest(count) {
    if (this.count <= count) return;
    const limit = (1 - SAME) * this.square.slice(0, this.count).sort()[count];
    const all = this.count;
    this.count = 0;
    for (let at = 0; at < all; at++)
      if (this.square[at] < limit) this.add(this.entity[at], this.px[at], this.py[at], this.vx[at], this.vy[at]);
  }
}

/** Fills `seen`, one list for each role, with what entity `me` sees: nearer than `sight.radius`, and not hidden.
 *
 *  A scene has `role`, `position` and `velocity` of its entities. Where `sight.blocker` is a role, its discs of
 *  `sight.size` hide agents from each other. `sight.mask`, if there is one, says for each entity whether it is seen. */
function look(scene, sight, controlled, me, seen) {
  const { role, position, velocity } = scene;
  const x = position[2 * me], y = position[2 * me + 1], farthest = (1 - SAME) * sight.radius * sight.radius;
  for (const list of seen) list.count = 0;
  for (let other = 0; other < role.length; other++) {
    if (other === me || (sight.mask && !sight.mask[other])) continue;
    const px = position[2 * other] - x, py = position[2 * other + 1] - y;
    if (px * px + py * py >= farthest) continue;
    if (sight.blocker >= 0 && role[other] < controlled && hidden(scene, sight, x, y, px, py)) continue;
    seen[role[other]].add(other, px, py, velocity[2 * other], velocity[2 * other + 1]);
  }
}

/** Tells whether the way from (x, y) along (dx, dy) comes too close to the centre of something that blocks the view. */
function hidden(scene, sight, x, y, dx, dy) {
  const length = Math.max(dx * dx + dy * dy, 1e-12);
  for (let other = 0; other < scene.role.length; other++) {
    if (scene.role[other] !== sight.blocker) continue;
    const cx = scene.position[2 * other] - x, cy = scene.position[2 * other + 1] - y;
    const share = Math.min(Math.max((dx * cx + dy * cy) / length, 0), 1);
    const ex = cx - share * dx, ey = cy - share * dy;
    if (ex * ex + ey * ey < sight.size * sight.size) return true;
  }
  return false;
}

/** Writes the frame of an agent into `frame`: its axes x and y, then the way to the centroid of itself and the seen. */
function makeFrame(rules, vx, vy, seen, frame) {
  let count = 0, sumX = 0, sumY = 0, total = 0, outX = 0, outY = 0;
  for (const { count: there, px, py, square } of seen) {
    count += there;
    for (let at = 0; at < there; at++) {
      sumX += px[at];
      sumY += py[at];
      total += square[at];
      outX += px[at] * square[at];
      outY += py[at] * square[at];
    }
  }
  const dx = sumX / (count + 1), dy = sumY / (count + 1);
  let x0 = 1, x1 = 0, side = 1;
  if (rules.rest === "global" && rules.axis !== "none") {
    const speed = Math.hypot(vx, vy);
    if (speed !== 0) [x0, x1] = [vx / speed, vy / speed];
    side = x0 * dy - x1 * dx > 0 ? 1 : -1;
  } else if (rules.axis !== "none") {
    const spread = Math.sqrt(total / Math.max(count, 1) + rules.close * rules.close);
    const scale = 1 / Math.max(total, rules.close * rules.close) / spread;
    outX *= scale; // the third moment: what lies far out counts most
    outY *= scale;
    const towardsX = dx / spread, towardsY = dy / spread, slow = Math.max(rules.slow, 1e-9);
    const amid = Math.max(1 - Math.hypot(towardsX, towardsY) / rules.amid, 0);
    const resting = rules.axis === "velocity" ? Math.min(Math.max(2 - Math.hypot(vx, vy) / slow, 0), 1) : 1;
    const moving = 1 - resting;
    x0 = resting * (towardsX + amid * outX) + (moving * vx) / slow;
    x1 = resting * (towardsY + amid * outY) + (moving * vy) / slow;
    const length = Math.max(Math.hypot(x0, x1), rules.tie);
    x0 /= length;
    x1 /= length;
    side = x0 * (resting * outY + moving * towardsY) - x1 * (resting * outX + moving * towardsX);
    side = Math.min(Math.max(side / rules.tie, -1), 1);
  }
  frame[0] = x0;
  frame[1] = x1;
  frame[2] = -side * x1;
  frame[3] = side * x0;
  frame[4] = dx;
  frame[5] = dy;
}
