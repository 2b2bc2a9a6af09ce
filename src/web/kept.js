// Kept weights whose matrices are in 8 bits, each row a scale and int8 numbers, as the float32 safetensors file that they
// were made of: its header is theirs.
function widened(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset), start = 8 + Number(view.getBigUint64(0, true));
  const { __metadata__: metadata, ...tensors } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start)));
  const all = Object.values(tensors).sort((a, b) => a.data_offsets[0] - b.data_offsets[0]);
  const file = new Uint8Array(start + all.at(-1).data_offsets[1]), numbers = new DataView(file.buffer);
  file.set(bytes.subarray(0, start));
  let at = start;
  for (const { dtype, shape: [rows, columns, ...more], data_offsets: [begin, end] } of all) {
    if (dtype !== "F32" || columns === undefined || more.length) {
      file.set(bytes.subarray(at, at + end - begin), start + begin);
      at += end - begin;
      continue;
    }
    for (let row = 0, to = start + begin; row < rows; row++) {
      const scale = view.getFloat32(at, true);
      at += 4;
      for (let column = 0; column < columns; column++, to += 4) numbers.setFloat32(to, scale * view.getInt8(at++), true);
    }
  }
  return file;
}
