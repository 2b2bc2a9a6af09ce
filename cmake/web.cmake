# Compiling for WebAssembly on Debian (clang-19, lld-19, libc++-19-dev-wasm32, libclang-rt-19-dev-wasm32, wasi-libc): one
# thread, 128-bit vectors, no files.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasi)
set(CMAKE_CXX_COMPILER_WORKS TRUE)  # a program for no system cannot be tried
set(CMAKE_CXX_FLAGS_INIT "-msimd128 -mbulk-memory -mnontrapping-fptoint -fexceptions -DJSON_HAS_RANGES=0 -DJSON_HAS_FILESYSTEM=0 -DJSON_HAS_EXPERIMENTAL_FILESYSTEM=0")
