"""The system calls that a sandboxed process may make, with the reason for each group."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

MACHINES: Mapping[str, tuple[int, int]] = {
    "x86_64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
    "riscv64": (0xC00000F3, 1),
}
"""Machine to its AUDIT_ARCH number (linux/audit.h) and to which of the two columns below is its."""


@frozen(kw_only=True)
class Condition:
    """A call is allowed where its argument is one of `values`, or shares no bit with `mask`."""

    argument: int
    values: tuple[int, ...] = ()
    mask: int = 0


CONDITIONS: Mapping[str, tuple[Condition, ...]] = {
    # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: namespaces hold them. AF_VSOCK reaches the machine
    # around them, and each further family is code of the kernel that no simulation needs. So are
    # types but streams, datagrams and raw ones, and protocols but TCP and UDP: to ask for one of
    # those loads its module.
    "socket": (
        Condition(argument=0, values=(1, 2, 10, 16)),
        Condition(argument=1, mask=0xFFF7F7FC),
        Condition(argument=2, values=(0, 6, 17)),
    ),
    "socketpair": (Condition(argument=0, values=(1,)),),
    # No flag of clone(2) that makes a namespace: in one of its own a process has capabilities.
    "clone": (Condition(argument=0, mask=0x7E020000),),
    # What isatty, subprocess and socket ask: TCGETS, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO,
    # FIONCLEX, FIOCLEX, SIOCGIFNAME. Not TIOCSTI (types into a terminal), nor file flags.
    "ioctl": (
        Condition(
            argument=1,
            values=(0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x8910),
        ),
    ),
    # PDEATHSIG, DUMPABLE, NAME, CAPBSET_READ, NO_NEW_PRIVS, THP_DISABLE, SET_VMA: own process.
    "prctl": (Condition(argument=0, values=(1, 2, 3, 4, 15, 16, 23, 38, 39, 41, 42, 0x53564D41)),),
    # To ask, and Linux itself: other personalities load other binary formats.
    "personality": (Condition(argument=0, values=(0, 0xFFFFFFFF)),),
    # Limits and priorities of the process that asks: a warm worker has the same user, outlives the
    # command, and what is set for it holds for the next problem.
    **dict.fromkeys(
        ("prlimit64", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr"),
        (Condition(argument=0, values=(0,)),),
    ),
    "setpriority": (Condition(argument=0, values=(0,)), Condition(argument=1, values=(0,))),
}
"""Of a call, all conditions must hold."""

_TABLE = """
# Files below the work folders; the mounts decide which of them can be written.
read:0:63 write:1:64 open:2: close:3:57 stat:4: fstat:5:80 lstat:6: lseek:8:62
pread64:17:67 pwrite64:18:68 readv:19:65 writev:20:66 preadv:295:69 pwritev:296:70
preadv2:327:286 pwritev2:328:287 access:21: faccessat:269:48 faccessat2:439:439
openat:257:56 openat2:437:437 creat:85: newfstatat:262:79 statx:332:291 readlink:89:
readlinkat:267:78 getdents:78: getdents64:217:61 getcwd:79:17 chdir:80:49 fchdir:81:50
rename:82: renameat:264:38 renameat2:316:276 mkdir:83: mkdirat:258:34 rmdir:84: link:86:
linkat:265:37 unlink:87: unlinkat:263:35 symlink:88: symlinkat:266:36 mknod:133:
mknodat:259:33 chmod:90: fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92:
fchown:93:55 lchown:94: fchownat:260:54 umask:95:166 truncate:76:45 ftruncate:77:46
fallocate:285:47 fsync:74:82 fdatasync:75:83 sync_file_range:277:84 fadvise64:221:223
readahead:187:213 utime:132: utimes:235: futimesat:261: utimensat:280:88 statfs:137:43
fstatfs:138:44 flock:73:32 fcntl:72:25 dup:32:23 dup2:33: dup3:292:24 close_range:436:436
sendfile:40:71 copy_file_range:326:285
getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10 listxattr:194:11 llistxattr:195:12
flistxattr:196:13
# Pipes, waiting and sockets of the sandbox's own network, which has a loopback only.
pipe:22: pipe2:293:59 poll:7: ppoll:271:73 select:23: pselect6:270:72 epoll_create:213:
epoll_create1:291:20 epoll_ctl:233:21 epoll_wait:232: epoll_pwait:281:22
epoll_pwait2:441:441 eventfd:284: eventfd2:290:19 signalfd:282: signalfd4:289:74
timerfd_create:283:85 timerfd_settime:286:86 timerfd_gettime:287:87
connect:42:203 accept:43:202 accept4:288:242 bind:49:200 listen:50:201 shutdown:48:210
sendto:44:206 recvfrom:45:207 sendmsg:46:211 recvmsg:47:212 sendmmsg:307:269
recvmmsg:299:243 getsockname:51:204 getpeername:52:205 setsockopt:54:208 getsockopt:55:209
# Memory of the process itself; RLIMIT_AS bounds it.
mmap:9:222 munmap:11:215 mprotect:10:226 mremap:25:216 brk:12:214 madvise:28:233
mincore:27:232 msync:26:227 membarrier:324:283 pkey_mprotect:329:288 pkey_alloc:330:289
pkey_free:331:290
# Processes and threads, in the namespaces that they have; their number is bounded.
fork:57: vfork:58: execve:59:221 execveat:322:281 exit:60:93 exit_group:231:94
wait4:61:260 waitid:247:95 set_tid_address:218:96 set_robust_list:273:99
get_robust_list:274:100 futex:202:98 futex_waitv:449:449 rseq:334:293 arch_prctl:158:
gettid:186:178 getpid:39:172 getppid:110:173 getpgrp:111: getpgid:121:155 setpgid:109:154
getsid:124:156 setsid:112:157 pidfd_open:434:434 pidfd_send_signal:424:424 kill:62:129
tkill:200:130 tgkill:234:131 rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139
rt_sigpending:127:136 rt_sigtimedwait:128:137 rt_sigqueueinfo:129:138
rt_tgsigqueueinfo:297:240 rt_sigsuspend:130:133 sigaltstack:131:132 pause:34:
restart_syscall:219:128 sched_yield:24:124 sched_getaffinity:204:123
sched_getparam:143:121 sched_getscheduler:145:120 sched_get_priority_max:146:125
sched_get_priority_min:147:126 sched_rr_get_interval:148:127 sched_getattr:315:275
getpriority:140:141 getrlimit:97:163
setrlimit:160:164 getrusage:98:165 times:100:153 getcpu:309:168
# Who the process is; without capabilities it can become nobody else.
getuid:102:174 geteuid:107:175 getgid:104:176 getegid:108:177 getgroups:115:158
getresuid:118:148 getresgid:120:150 setuid:105:146 setgid:106:144 setreuid:113:145
setregid:114:143 setresuid:117:147 setresgid:119:149 setgroups:116:159 setfsuid:122:151
setfsgid:123:152 capget:125:90 capset:126:91
# Clocks, timers, random numbers and what the machine is called.
time:201: gettimeofday:96:169 clock_gettime:228:113 clock_getres:229:114 nanosleep:35:101
clock_nanosleep:230:115 alarm:37: getitimer:36:102 setitimer:38:103 timer_create:222:107
timer_settime:223:110 timer_gettime:224:108 timer_getoverrun:225:109 timer_delete:226:111
getrandom:318:278 uname:63:160 sysinfo:99:179
# Allowed under the conditions above.
socket:41:198 clone:56:220 ioctl:16:29 prctl:157:167 personality:135:92
socketpair:53:199 prlimit64:302:261 setpriority:141:140 sched_setaffinity:203:122
sched_setparam:142:118 sched_setscheduler:144:119 sched_setattr:314:274
"""
"""
Name, number on x86_64, number in the generic table (aarch64, riscv64); "" where a machine has none.

Whatever is not here does not exist inside (ENOSYS, so that libraries fall back), among it: other
namespaces and mounts (unshare, setns, mount, chroot, pivot_root, open_tree, fsopen); other
processes' memory (ptrace, process_vm_*, kcmp, pidfd_getfd); what outlives a process (keys, System V
and POSIX queues and shared memory, extended attributes); memory that no limit counts (memfd_create,
mlock, io_uring, aio); pages of files in pipes (splice, tee, vmsplice); the kernel itself (bpf,
perf_event_open, userfaultfd, modules, kexec, syslog, quotas, clocks, swap). clone3 hides its flags
in memory, so that clone stands in for it.
"""


def numbers() -> Mapping[str, tuple[int | None, int | None]]:
    """Each allowed call with its two numbers, None where a machine has none."""
    words = " ".join(line for line in _TABLE.splitlines() if not line.startswith("#")).split()
    found = {}
    for word in words:
        name, first, second = word.split(":")
        found[name] = (int(first) if first else None, int(second) if second else None)
    return found
