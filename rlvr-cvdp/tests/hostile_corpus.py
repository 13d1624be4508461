"""Programs that try to leave a sandbox: each prints REACHED where it succeeds.

Each is run undefended too, where it must succeed, so that a test that finds it held can fail.
`FACTS` holds what lies outside: a secret, and where it was put.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

HEAD = """\
import ctypes, errno, glob, mmap, os, platform, signal, socket, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
LONG = ctypes.c_long
COLUMN = 0 if platform.machine() == "x86_64" else 1

def wait_for_the_limit(seconds):
    if not IS_OUTSIDE:  # where there is none
        time.sleep(seconds)

def reached(detail=""):
    print("REACHED", detail, flush=True)

def read(path, size=1 << 16):
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""

def call(*numbers_then_words):
    (numbers, *words) = numbers_then_words
    ctypes.set_errno(0)
    words = [LONG(word) if isinstance(word, int) else word for word in words]
    return libc.syscall(LONG(numbers[COLUMN]), *words), ctypes.get_errno()

def is_there(*numbers_then_words):
    result, error = call(*numbers_then_words)
    return result >= 0 or error not in (errno.ENOSYS, errno.EPERM)
"""

QUICK: Mapping[str, str] = {
    # --- what this machine knows: variables, files, descriptors, keys, names -------------------
    "environ of any process": """
for path in glob.glob("/proc/[0-9]*/environ") + ["/proc/self/environ"]:
    if SECRET.encode() in read(path):
        reached(path)
if SECRET in str(os.environ):
    reached("own")
""",
    "command line of any process": """
for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/task/*/comm"):
    if WORD.encode() in read(path) and b"SECRET" not in read(path):  # which is this program
        reached(path)
""",
    "an inherited descriptor": """
for name in os.listdir("/proc/self/fd"):
    try:
        if SECRET.encode() in os.pread(int(name), 4096, 0):
            reached(name)
    except OSError:
        pass
""",
    "a file of this machine": """
for path in FILES:
    if SECRET.encode() in read(path):
        reached(path)
""",
    "a file through another process's root": """
for path in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd"):
    if SECRET.encode() in read(path + FILES[0]):
        reached(path)
""",
    "settings and logs of the kernel": """
for path in ("cmdline", "kcore", "keys", "kmsg", "kallsyms", "iomem", "modules", "partitions",
             "diskstats", "version_signature", "key-users", "timer_list", "sched_debug",
             "interrupts", "config.gz", "sys/kernel/random/boot_id", "sys/kernel/osrelease",
             "sys/kernel/core_pattern", "sys/net/ipv4/ip_forward", "bus/pci/devices"):
    if path != "kmsg" and read("/proc/" + path, 16):
        reached(path)
""",
    "hardware": """
for path in ("/sys/class", "/sys/kernel", "/sys/fs", "/sys/devices"):
    if os.path.isdir(path) and os.listdir(path):
        reached(path)
""",
    "name of this machine": """
if socket.gethostname() == NAME or NAME.encode() in read("/etc/hostname") + read("/etc/hosts"):
    reached(NAME)
""",
    "name servers of this machine": """
if read("/etc/resolv.conf").strip():
    reached()
""",
    "a key of the session": """
KEYCTL, READ = (250, 219), 11
for name in (b"user",):
    found, _ = call((249, 218), name, KEY.encode(), None, 0)   # request_key
    if found > 0:
        buffer = ctypes.create_string_buffer(100)
        if call(KEYCTL, READ, found, buffer, 100)[0] > 0 and SECRET.encode() in buffer.raw:
            reached()
""",
    "memory shared with this machine": """
libc.shmat.restype = ctypes.c_void_p
found = libc.shmget(SHM_KEY, 0, 0)
if found >= 0:
    place = libc.shmat(found, None, 0o10000)
    if SECRET.encode() in ctypes.string_at(place, 64):
        reached()
""",
    "a file of shared memory": """
if SECRET.encode() in read("/dev/shm/" + WORD):
    reached()
""",
    # --- network ------------------------------------------------------------------------------
    "a port of this machine": """
for host in ("127.0.0.1", "::1", "localhost"):
    try:
        socket.create_connection((host, PORT), 2)
        reached(host)
    except OSError:
        pass
""",
    "an abstract socket of this machine": """
with socket.socket(socket.AF_UNIX) as line:
    line.connect(chr(0) + WORD)
    reached()
""",
    "a packet socket": "socket.socket(17, socket.SOCK_RAW); reached()",
    "the machine around this one": "socket.socket(40, socket.SOCK_STREAM); reached()",
    "any interface but its own": """
names = [line.split(b":")[0].strip() for line in read("/proc/net/dev").split(b"\\n")[2:] if line]
if names != [b"lo"]:
    reached(names)
""",
    # --- other processes ----------------------------------------------------------------------
    "a process of this machine": "os.kill(PID, 0); reached()",
    "ptrace": """
child = os.fork()
if not child:
    time.sleep(30)
if libc.ptrace(16, child, 0, 0) == 0:
    reached()
os.kill(child, 9)
""",
    "another process's memory": """
buffer = ctypes.create_string_buffer(8)
secret = ctypes.create_string_buffer(b"inside")
child = os.fork()
if not child:
    time.sleep(30)
words = [struct.pack("PN", ctypes.addressof(b), 6) for b in (buffer, secret)]
if call((310, 270), child, words[0], 1, words[1], 1, 0)[0] == 6:
    reached()
os.kill(child, 9)
""",
    "another process's descriptors": """
child = os.fork()
if not child:
    time.sleep(30)
handle = os.pidfd_open(child)
if call((438, 438), handle, 0, 0)[0] >= 0:
    reached()
os.kill(child, 9)
""",
    # --- rights -------------------------------------------------------------------------------
    "a user namespace": """
if libc.unshare(0x10000000) == 0:
    reached()
""",
    "a user namespace by clone": """
child, _ = call((56, 220), 0x10000000 | 17, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
if child > 0:
    reached()
""",
    "a user namespace by clone3": """
words = struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0)
child, _ = call((435, 435), words, len(words))
if child == 0:
    os._exit(0)
if child > 0:
    reached()
""",
    "a namespace that is there": """
if libc.setns(os.open("/proc/self/ns/uts", os.O_RDONLY), 0) == 0:
    reached()
""",
    "a mount": """
libc.unshare(0x00020000)
if libc.mount(b"none", WRITABLE.encode(), b"tmpfs", 0, None) == 0:
    reached()
    libc.umount2(WRITABLE.encode(), 2)
""",
    "another root": """
if libc.chroot(b"/") == 0:
    reached()
""",
    "capabilities": """
status = read("/proc/self/status").decode()
lines = dict(line.split(":") for line in status.splitlines() if line.count(":") == 1)
if int(lines["CapEff"], 16) or int(lines["CapBnd"], 16) or lines["NoNewPrivs"].strip() == "0":
    reached()
""",
    "no filter of system calls": """
if b"Seccomp:\\t0" in read("/proc/self/status"):
    reached()
""",
    "a device node": """
path = WRITABLE + "/node"
try:
    os.mknod(path, 0o20666, os.makedev(1, 3))
    reached()
finally:
    if os.path.lexists(path):
        os.unlink(path)
""",
    "devices of this machine": """
for name in ("mem", "kmsg", "vda", "sda", "nvme0n1", "kvm", "fuse", "net/tun", "console", "hwrng"):
    try:
        os.close(os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK))
        reached(name)
    except OSError:
        pass
""",
    "modes of a device": """
os.chmod("/dev/full", 0o606)  # whether that was this machine's is seen outside
if IS_OUTSIDE:
    os.chmod("/dev/full", 0o666)
    reached()
""",
    "the name of the machine is set": """
name = socket.gethostname().encode()
if libc.sethostname(name, len(name)) == 0:
    reached()
""",
    "a setting is opened to be written": """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory",
             "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/sys/kernel/ns_last_pid"):
    try:
        os.close(os.open(path, os.O_WRONLY))
        reached(path)
    except OSError:
        pass
""",
    "typing into a terminal": """
import fcntl, termios
_, terminal = os.openpty()
fcntl.ioctl(terminal, termios.TIOCSTI, b"x")
reached()
""",
    # --- seldom used calls, each of which has been a hole of the kernel ------------------------
    "bpf": "is_there((321, 280), 0, 0, 0) and reached()",
    "perf_event_open": "is_there((298, 241), 0, 0, -1, -1, 0) and reached()",
    "userfaultfd": "is_there((323, 282), 0) and reached()",
    "io_uring": "is_there((425, 425), 0, 0) and reached()",
    "fanotify": "is_there((300, 262), 0, 0) and reached()",
    "open by handle": "is_there((304, 265), -100, 0, 0) and reached()",
    "kcmp": "is_there((312, 272), os.getpid(), os.getpid(), 0, 0, 0) and reached()",
    "aio": "is_there((206, 0), 1, ctypes.create_string_buffer(8)) and reached()",
    "mount by descriptor": "is_there((430, 430), b'tmpfs', 0) and reached()",
    "quota": "is_there((179, 60), 0, 0, 0, 0) and reached()",
    "kernel log": "is_there((103, 116), 10, 0, 0) and reached()",
    "swap": "is_there((168, 225), b'/nowhere') and reached()",
    "the clock": "is_there((227, 112), 99, 0) and reached()",
    "memory without a name": "is_there((319, 279), b'x', 0) and reached()",
    # --- other processes: what is set for a worker would hold for the next problem -------------
    "limits of another process": """
words = ctypes.create_string_buffer(16)
if call((302, 261), TARGET, 7, None, words)[0] == 0:
    if call((302, 261), TARGET, 7, words, None)[0] == 0:
        reached()
""",
    "priority of another process": """
if call((141, 140), 0, TARGET, 1)[0] == 0:
    reached()
""",
    "priority of a group and of a user": """
for which in (1, 2):
    if call((141, 140), which, 0, 0)[0] == 0:
        reached(which)
""",
    "processors of another process": """
words = ctypes.create_string_buffer(128)
size, _ = call((204, 123), TARGET, 128, words)
if size > 0 and call((203, 122), TARGET, size, words)[0] == 0:
    reached()
""",
    "scheduling of another process": """
for number in ((144, 119), (142, 118)):
    words = (number[0] == 144 and [TARGET, 3] or [TARGET]) + [struct.pack("i", 0)]
    if call(number, *words)[0] == 0:
        reached(number)
if call((314, 274), TARGET, struct.pack("IIQiIQQQ", 48, 3, 0, 0, 0, 0, 0, 0), 0)[0] == 0:
    reached("attributes")
""",
    "another process by its folder": """
for name in ("exe", "fd/0", "ns/net", "cwd", "root"):
    try:
        os.readlink(f"/proc/{TARGET}/{name}")
        reached(name)
    except OSError:
        pass
for name in ("auxv", "environ", "io", "maps", "mem", "pagemap", "personality", "smaps", "syscall"):
    if read(f"/proc/{TARGET}/{name}", 8):
        reached(name)
""",
    "a device that was inherited": """
import stat
own = os.stat("/dev/null")
for handle in range(100):
    try:
        facts = os.fstat(handle)
        is_own = (facts.st_dev, facts.st_ino) == (own.st_dev, own.st_ino) and not IS_OUTSIDE
        if stat.S_ISCHR(facts.st_mode) and not is_own:
            os.fchmod(handle, stat.S_IMODE(facts.st_mode))
            reached(handle)
    except OSError:
        pass
""",
    "many descriptors": """
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
reached()
""",
    # --- ways around the filter ---------------------------------------------------------------
    "the calls of 32 bits": """
# mov eax, 20 (getpid); int 0x80; ret
place = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
place.write(bytes.fromhex("b814000000cd80c3"))
run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(place)))
if run() == os.getpid():
    reached()
""",
    "a family by a pair of sockets": """
for family in (30, 31, 38, 40):  # TIPC, Bluetooth, the kernel's ciphers, the machine around
    ctypes.set_errno(0)
    words = (ctypes.c_int * 2)()
    libc.socketpair(family, 1, 0, words)
    if ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):  # the kernel looked for it
        reached(family)
""",
    "a protocol whose module is loaded": """
for family, kind, protocol in ((2, 1, 132), (2, 6, 33), (10, 5, 132), (2, 2, 136), (16, 3, 21)):
    ctypes.set_errno(0)
    found = libc.socket(family, kind, protocol)
    if found >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        reached((family, kind, protocol))
""",
    "pages of a file in a pipe": """
near, far = os.pipe()
with open("/etc/ld.so.cache" if IS_OUTSIDE else "/src/test_inc.py", "rb") as file:
    if call((275, 76), file.fileno(), None, far, None, 1, 0)[0] == 1:
        reached()
""",
    "a filter that tells of others": "is_there((317, 277), 1, 8, 0) and reached()",
    "rules for files": "is_there((444, 444), 0, 0, 1) and reached()",
    "memory of others, moved": "is_there((279, 239), TARGET, 0, 0, 0, 0, 0) and reached()",
    "advice on another's memory": "is_there((440, 440), -1, 0, 0, 0, 0) and reached()",
    "a handle of a file": "is_there((303, 264), -100, b'/', b'', 0, 0) and reached()",
    "another root by pivot": "is_there((155, 41), b'/nowhere', b'/nowhere') and reached()",
    "memory locked": "is_there((149, 228), 0, 0) and reached()",
    "secret memory": "is_there((447, 447), 99) and reached()",
    "accounts of processes": "is_there((163, 89), b'/nowhere') and reached()",
    # --- what would stay for the next problem --------------------------------------------------
    "a queue of messages": "is_there((68, 186), 0, 0o1600) and reached()",
    "a semaphore": "is_there((64, 190), 0, 1, 0o1600) and reached()",
    "a named queue": "is_there((240, 180), b'', 0, 0, 0) and reached()",
    "a new key": "is_there((248, 217), b'user', b'rlvr', b'x', 1, -2) and reached()",
    "an extended attribute": """
path = WRITABLE + "/marked"
open(path, "w").close()
try:
    os.setxattr(path, "user.mark", b"1")
    reached()
finally:
    os.unlink(path)
""",
    "a flag of a file": """
import fcntl
path = WRITABLE + "/flagged"
with open(path, "w") as file:
    flags = struct.unpack("L", fcntl.ioctl(file, 0x80086601, bytes(8)))[0]
    fcntl.ioctl(file, 0x40086602, struct.pack("L", flags | 0x40))
    reached()
""",
    "a file outside of the work folders": """
for folder in ("/", "/etc", "/usr", "/usr/bin", "/bin", "/lib", "/dev", "/var", "/opt", "/rlvr",
               "/rlvr/python", "/rlvr/control", "/proc", "/sys", "/root", "/home", "/src"):
    path = folder + "/rlvr-hostile"
    try:
        open(path, "w").close()
        os.unlink(path)
        reached(path)
    except OSError:
        pass
""",
}
"""Name to program. One that raises has not succeeded."""

LARGE: Mapping[str, str] = {
    "processes": """
children = []
try:
    for _ in range(300):
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        children.append(child)
    wait_for_the_limit(1)
    if not any(os.waitpid(child, os.WNOHANG)[0] for child in children):  # all are there at once
        reached(len(children))
finally:
    for child in children:
        os.kill(child, 9)
""",
    "memory": "block = bytearray(800_000_000); reached()",
    "memory in sockets": """
kept = []
for _ in range(500):
    kept += socket.socketpair()
    kept[-1].setblocking(False)
    try:
        while True:
            kept[-1].send(bytes(65536))
    except BlockingIOError:
        pass
wait_for_the_limit(1)
reached(len(kept))
""",
    "memory of many": """
near, far = os.pipe()
children = []
try:
    for _ in range(8):
        child = os.fork()
        if not child:
            block = bytearray(b"x") * 160_000_000
            os.write(far, b"x")
            time.sleep(60)
            os._exit(0)
        children.append(child)
        os.read(near, 1)
    wait_for_the_limit(1)
    if not any(os.waitpid(child, os.WNOHANG)[0] for child in children):  # all are there at once
        reached(len(children))
finally:
    for child in children:
        os.kill(child, 9)
""",
    "disk": """
for number in range(12):
    with open(f"{WRITABLE}/big{number}", "wb") as file:
        file.write(bytes(4_000_000))
wait_for_the_limit(3)
reached()
""",
    "disk below a long path": """
os.chdir(WRITABLE)
for _ in range(40):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
for number in range(12):
    with open(f"big{number}", "wb") as file:
        file.write(bytes(4_000_000))
wait_for_the_limit(3)
reached()
""",
    "disk of many small files": """
for number in range(2_600):
    os.close(os.open(f"{WRITABLE}/small{number}", os.O_CREAT | os.O_WRONLY))
wait_for_the_limit(3)
reached()
""",
    "disk without a name": """
kept = []
for number in range(12):
    kept.append(open(f"{WRITABLE}/gone", "wb"))
    os.unlink(f"{WRITABLE}/gone")
    kept[-1].write(bytes(4_000_000))
    kept[-1].flush()
wait_for_the_limit(3)
reached()
""",
    "a large file": """
with open(f"{WRITABLE}/large", "wb") as file:
    file.seek(40_000_000)
    file.write(b"x")
reached()
""",
    "temporary files": """
for folder in ("/tmp", "/dev/shm"):
    with open(folder + "/rlvr-big", "wb") as file:
        try:
            for _ in range(12):
                file.write(bytes(4_000_000))
            reached(folder)
        finally:
            os.unlink(file.name)
""",
    "output": """
for _ in range(40):
    sys.stdout.write("x" * 999_999 + chr(10))
sys.stdout.flush()
print("REACHED")
""",
    "time": """
while time.process_time() < 2.0:  # of the processor: a busy machine gives less of it
    pass
reached()
""",
}
"""The same for what a limit stops. WRITABLE is a folder to fill."""


def program(script: str, facts: Mapping[str, object]) -> str:
    """A whole program; the facts are its first variables."""
    values = "".join(f"{name} = {value!r}\n" for name, value in facts.items())
    return f"{HEAD}{values}{script}"


def each_of(programs: Mapping[str, str]) -> str:
    """A program that runs each in a process of its own; prints a line of JSON: name to output."""
    return f"""
import json, os
said = {{}}
for name, text in json.loads({json.dumps(json.dumps(programs))}).items():
    near, far = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(far, 1)
        os.close(near)
        try:
            exec(text, {{}})
        except BaseException as error:
            print(repr(error), flush=True)
        os._exit(0)
    os.close(far)
    with open(near) as output:
        said[name] = output.read()
    os.waitpid(child, 0)
"""


def all_of(facts: Mapping[str, object]) -> str:
    """A program that runs each quick one; prints a line of JSON: those that succeeded."""
    programs = {name: program(script, facts) for name, script in QUICK.items()}
    programs["its own files"] = program("read('/code/rtl/inc.sv') and reached()", facts)
    return f"""{each_of(programs)}
found = {{name: text[:200] for name, text in said.items() if "REACHED" in text}}
print("FOUND " + json.dumps(found), flush=True)
"""
