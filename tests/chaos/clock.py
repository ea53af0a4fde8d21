"""A settable clock: a preloaded library adds the offset in a file to the time of day.

It affects processes with `environment` in their own; the monotonic clock stays unchanged.
"""

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
static const volatile int64_t none, *ahead_s = &none;
static int (*real)(clockid_t, struct timespec *);
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) ahead_s = map;
    *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
}
int clock_gettime(clockid_t clock, struct timespec *told) {
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, told);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        told->tv_sec += *ahead_s;
    return failed;
}
int gettimeofday(struct timeval *restrict told, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec;
    told->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The time of day of all processes that run with `environment`.

    Raises:
        FileNotFoundError: There is no C compiler.
    """

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("cc")
        source, library = folder / "clock.c", folder / "clock.so"
        source.write_text(_SOURCE)
        self._ahead = folder / "ahead"
        self.set(0)
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        for path in (library, self._ahead):
            path.chmod(0o755)
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._ahead)}

    def set(self, ahead_s: int) -> None:
        """Set the clock this many seconds ahead of the machine's."""
        if not self._ahead.exists():
            self._ahead.touch()
        with self._ahead.open("r+b") as file:  # the same file, since it is memory-mapped
            file.write(struct.pack("=q", ahead_s))
