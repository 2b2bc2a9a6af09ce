// Products with quantised matrices, by the instructions for bytes that processors with bf16 have beside them.
#include "kernels/product/quantized.cpp"
