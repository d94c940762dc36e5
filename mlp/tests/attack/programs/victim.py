"""The other user's job: keeps a secret in every place where a program might, until it is stopped."""

import ctypes
import os
import signal
import socket
import sys
import time

secret = sys.argv[1]
with open("kept", "w") as file:
    file.write(secret)
with open("/tmp/kept", "w") as file:
    file.write(secret)
with open("/dev/shm/kept", "w") as file:
    file.write(secret)
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p
segment = LIBC.shmget(4711, 4096, 0o1666)
if segment >= 0:
    ctypes.memmove(LIBC.shmat(segment, None, 0), secret.encode(), len(secret))
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
link.bind(f"\0victim-{os.environ['MLP_JOB']}-{os.getppid()}-{time.time_ns()}")
link.listen()
link.settimeout(0.2)
named = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
named.bind("/tmp/victim.sock")
os.chmod("/tmp/victim.sock", 0o777)
named.listen()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
while True:
    try:
        link.accept()
        print("visited", flush=True)
    except TimeoutError:
        time.sleep(0.05)
