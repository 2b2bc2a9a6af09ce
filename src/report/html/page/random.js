// PyTorch's random streams, as the library draws them: mt19937, and dropout in its two flavours.

// Matsumoto and Nishimura 1998, seeded by init_genrand with the seed's low 32 bits.
class Mt19937 {
  constructor(seed) {
    this.state = new Uint32Array(624);
    this.state[0] = Number(BigInt(seed) & 0xffffffffn);
    for (let i = 1; i < 624; i++) {
      const before = this.state[i - 1] ^ (this.state[i - 1] >>> 30);
      this.state[i] = Math.imul(1812433253, before) + i;
    }
    this.at = 624;
  }
  twist() {
    const s = this.state;
    for (let i = 0; i < 624; i++) {
      const y = (s[i] & 0x80000000) | (s[(i + 1) % 624] & 0x7fffffff);
      s[i] = s[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    this.at = 0;
  }
  next() {
    if (this.at === 624) this.twist();
    let y = this.state[this.at++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }
  skip(count) { for (let i = 0; i < count; i++) this.next(); }
  // [0, 1) of 24 bits, as torch.rand's float32; of 53 bits, as bernoulli's double.
  float() { return (this.next() & 0xffffff) * 2 ** -24; }
  double() { const high = this.next(); return ((high & 0x1fffff) * 2 ** 32 + this.next()) * 2 ** -53; }
}

// MCG31m1 (L'Ecuyer 1999): x · 1132489760 mod 2³¹ − 1, in two halves that a double holds exactly.
class Mcg31 {
  constructor(seed) { this.x = seed % 0x7fffffff || 1; }
  next() {
    const value = this.x / 0x7fffffff, high = Math.floor(1132489760 / 65536), low = 1132489760 % 65536;
    this.x = (((this.x * high) % 0x7fffffff) * 65536 + this.x * low) % 0x7fffffff;
    return value;
  }
}

// 1 where an element is kept.
function dropoutKeep(stream, flavour, count, p) {
  const keep = new Uint8Array(count);
  if (p === 0 || p === 1) return keep.fill(p === 0 ? 1 : 0);
  if (flavour === "mkl") {
    const draws = new Mcg31(stream.next());
    for (let i = 0; i < count; i++) keep[i] = draws.next() < 1 - p ? 1 : 0;
  } else {
    for (let i = 0; i < count; i++) keep[i] = stream.double() < 1 - p ? 1 : 0;
  }
  return keep;
}

// The module's passes in train mode, one after the other: its weights are drawn first, then a mask for each pass.
class DropoutPasses {
  constructor(seed, flavour, p) {
    Object.assign(this, { flavour, p, stream: new Mt19937(seed), pass: 0 });
    const drawn = Object.entries(report.parameters).filter(([name]) => !name.endsWith("norm.weight"));  // those of norms are 1
    for (const [, { shape }] of drawn) this.stream.skip(shape.reduce((a, b) => a * b, 1));
  }
  // The kept elements of every head, for the text that this report shows.
  next() {
    this.pass++;
    const { heads } = blocks[0], { rows, columns } = blocks[0].step("weights"), texts = Math.max(report.batch, 1), plane = rows * columns;
    const calls = isWrapper ? heads : 1, each = heads / calls, kept = [];
    for (let call = 0; call < calls; call++) {
      const keep = dropoutKeep(this.stream, this.flavour, texts * each * plane, this.p);
      for (let head = 0; head < each; head++) {
        const from = (report.item * each + head) * plane;
        kept.push(keep.subarray(from, from + plane));
      }
    }
    return kept;
  }
}

// Are the first weights the ones that this seed draws? Files of weights are not.
function weightsAreSeeded() {
  if (report.seed === null || !Object.keys(report.parameters).length) return false;
  const stream = new Mt19937(report.seed), prefix = isWrapper ? "heads.0." : "";
  const plain = parameter("W_query"), first = plain ?? parameter(`${prefix}${config?.layer_order === "kqv" ? "W_key" : "W_query"}.weight`) ?? parameter("q_proj.weight") ?? parameter("q_a_proj.weight");
  if (!first) return true;  // too many to be here: nothing speaks against it
  const bound = Math.fround(1 / Math.sqrt(first.shape[1])), range = Math.fround(2 * bound);
  return first.values.slice(0, 8).every((w) => Math.abs(w - (plain ? stream.float() : stream.float() * range - bound)) < 1e-6);
}
