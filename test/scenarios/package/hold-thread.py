"""Stops one thread of another process, as a debugger does, until this program is ended: hold-thread.py THREAD."""
import ctypes
import os
import sys

PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000


def ask(request: int, thread: int) -> None:
    if libc.ptrace(request, thread, None, None) != 0:
        sys.exit(f"hold-thread: {os.strerror(ctypes.get_errno())}")


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
thread = int(sys.argv[1])
ask(PTRACE_SEIZE, thread)
ask(PTRACE_INTERRUPT, thread)
os.waitpid(thread, WALL)
# A process that is killed ends only when whoever traces its threads has seen each of them end.
while not os.WIFEXITED(status := os.waitpid(thread, WALL)[1]) and not os.WIFSIGNALED(status):
    pass
