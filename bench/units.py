"""What a process must be started with, so that it computes by one unit, on some cores, and keeps its memory's pages."""

import os

# attn's units, and the variables that hold its rivals to the same instructions: of PyTorch's own kernels (and of those
# that torch.compile makes), of oneDNN and of MKL. Each reads its variable when it is loaded. MKL heeds its own on
# Intel's processors alone.
UNITS = {
    "avx2": ("avx2", "AVX2", "AVX2"),
    "avx512": ("avx512", "AVX512_CORE", "AVX512"),
    "avx512bf16": ("avx512", "AVX512_CORE_BF16", "AVX512_E2"),
    "amx": ("avx512", "AVX512_CORE_AMX", "AVX512_E4"),
}
NAMES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")

# A new page is cleared by the system when it is first written, which can take longer than a call's work. glibc keeps the
# pages that it has, where it never maps memory for one allocation and never gives any back.
KEPT_PAGES = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}


def environment(unit, threads, pages="kept"):
    """The whole environment of a process; without a unit, nothing limits the instructions."""
    made = {name: value for name, value in os.environ.items() if name not in (*NAMES, "ATTN_FORCE_ISA")}
    made |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if unit:
        made |= dict(zip(NAMES, UNITS[unit]), ATTN_FORCE_ISA=unit)
    return made | (KEPT_PAGES if pages == "kept" else {})


def capability(unit):
    """What torch.backends.cpu.get_cpu_capability() then says; None: anything."""
    return UNITS[unit][0].upper() if unit else None


def siblings(core):
    """The logical processors of a core, as a text to tell cores apart."""
    try:
        with open(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list") as file:
            return file.read().strip()
    except OSError:
        return str(core)


def cores(threads, allowed=None):
    """So many of the processors that this process may use, one of each core before the second of any."""
    seen, order = {}, []
    for core in sorted(os.sched_getaffinity(0) if allowed is None else allowed):
        place = siblings(core)
        order.append((seen.setdefault(place, 0), core))
        seen[place] += 1
    return {core for _, core in sorted(order)[:threads]}


def pinned(threads):
    """For subprocess.Popen(preexec_fn=…): the process and all that it starts run on these cores alone."""
    chosen = cores(threads)
    return lambda: os.sched_setaffinity(0, chosen)
