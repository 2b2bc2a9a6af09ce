// Colours of numbers. cividis: Nuñez, Anderton, Renslow 2018 (doi 10.1371/journal.pone.0199239), made to look alike to
// readers with and without colour-vision deficiency. PuOr, for differences: ColorBrewer (Harrower and Brewer 2003).
const stopsOf = (text) => text.match(/.{6}/g).map((hex) => hex.match(/../g).map((pair) => parseInt(pair, 16)));
const cividis = stopsOf("00224e00285b002e6a0533711a386f273e6e32436d3b496c434e6c4b546c535a6d5a5f6e61656f686a716f70737676767d" +
  "7c788482798c8878938e789b9476a39a74aba072b4a76fbcae6cc4b468cdbb63d5c25edec958e7d150f0d846f9e03afee838");
const puor = stopsOf("2d004b5326878073acb1aad1d8daebf7f7f6fee0b6fcb761e08214b257067f3b08");
const notANumber = [204, 51, 68];

function between(stops, share) {
  const at = clamped(share) * (stops.length - 1), below = Math.min(Math.floor(at), stops.length - 2);
  return stops[below].map((c, i) => Math.round(c + (stops[below + 1][i] - c) * (at - below)));
}

// The finite range of a matrix, each row's largest value, and what else there is among them. Masked cells do not count.
const ranges = new WeakMap();
const rangeOf = (matrix) => held(ranges, matrix, () => {
  const { values, masked, rows, columns } = matrix;
  const range = { low: Infinity, high: -Infinity, nan: 0, minus: 0, plus: 0, masked: 0, least: Infinity, largest: new Float32Array(rows) };
  values.forEach((x, at) => {
    const row = Math.floor(at / columns);
    if (masked?.[at]) range.masked++;
    else if (Number.isNaN(x)) range.nan++;
    else if (x === -Infinity) range.minus++;
    else if (x === Infinity) range.plus++;
    else {
      range.low = Math.min(range.low, x);
      range.high = Math.max(range.high, x);
      if (x > 0) range.least = Math.min(range.least, x);
      range.largest[row] = Math.max(range.largest[row], x);
    }
  });
  if (range.low > range.high) range.low = range.high = 0;
  return range;
});

const scaleNames = { linear: "linear", row: "by row", log: "logarithmic" };
// Returns the scale to draw on. "auto" is by row from 12 tokens on, as in the library's other figures.
function chosenScale(wanted, matrix) {
  const { low } = rangeOf(matrix), side = Math.max(matrix.rows, matrix.columns) * (matrix.factor ?? 1);
  if (low < 0) return "linear";
  return wanted === "auto" ? (side >= 12 ? "row" : "linear") : wanted;
}

// A scale, from 0 unless there are values below it: share(x, row) in [0, 1], colour(x, row) as [r, g, b], null for −∞.
// kind: linear; row, each row up to its own largest value; log; diverging, with 0 in the middle.
function scaleOf(matrix, kind = "linear") {
  const range = rangeOf(matrix), most = Math.max(Math.abs(range.low), Math.abs(range.high)), least = Math.min(range.low, 0), high = Math.max(range.high, 0);
  const floor = Math.max(Math.min(range.least, range.high), range.high * 1e-6), row = (x, i) => (range.largest[i] > 0 ? x / range.largest[i] : 0);
  const linear = (low, high) => ({ low, high, stops: cividis, share: (x) => (high > low ? (x - low) / (high - low) : 0), lowText: format(low), highText: format(high) });
  const kinds = {
    linear: linear(least, high), diverging: { ...linear(-most, most), stops: puor, ...(most === 0 && { share: () => 0.5 }) },
    row: { ...linear(0, 1), share: row, lowText: "0", highText: "row’s largest" },
    log: { ...linear(floor, high), share: (x) => (x <= floor ? 0 : Math.log(x / floor) / Math.log(high / floor)), lowText: (floor < high ? "≤ " : "") + format(floor) },
  };
  const scale = kinds[kind], { stops, share } = scale;
  const colour = (x, i) => (Number.isNaN(x) ? notANumber : x === -Infinity ? null : between(stops, x === Infinity ? 1 : share(x, i)));
  return { ...range, ...scale, kind, colour };
}

const css = (rgb) => `rgb(${rgb.join(",")})`;
// Black or white, whichever reads better on it (relative luminance, WCAG 2).
function inkOn(rgb) {
  const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}
// Distinct colours for words and series: Okabe and Ito 2008, "Color Universal Design".
const series = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f"];
const seriesOf = (i) => series[i % series.length];
