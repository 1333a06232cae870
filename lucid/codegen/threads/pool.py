"""The thread pool as machine code: chunks of a region are claimed with one atomic addition.

The state is one block of memory, a cache line or two for each thing that is written often:

    0    word: chunks << 40 | claimed from the back << 20 | claimed from the front
    8    function of the region, void (frame, chunk, own);  16  its frame
    128  chunks that are done
    256  1 while a region runs;  264  worker threads;  272  for how many microseconds the caller
         shall run regions alone;  280  for how many it will be after the next stall;  288  the
         processor on which it last woke a worker;  296  1 once the workers have been started
    384  1 when the workers shall leave
    512  for each worker, 128 bytes apart: 1 while it is parked, and its lock

The caller takes chunks from the front, the first worker from the back, and so on in turn: what a
thread wrote in one region it mostly finds in its own cache in the next one. Everybody may take
every chunk, so a thread that loses its processor holds up no more than the chunk that it is at.
Chunks that run at the same time have each its piece of scratch memory; those of a thread alone all
have the first one, which stays in its cache.
A claim is valid only with the number of chunks that was in the same word: a late worker does no
harm. Workers spin for a while after a region, then park in a lock of CPython, which needs no GIL.

A caller that waits for a chunk much longer than the chunk should take, and than it has been at work
on its own chunks, has lost a worker to another process: a stall. It then runs regions alone for a
while, the longer the more often that happens. Schedulers wake a thread where it was woken from, and
may leave two busy threads there for seconds while other processors are idle. So, on Linux, a worker
that wakes on its caller's processor leaves.
"""

from __future__ import annotations

from lucid.codegen import costs
from lucid.codegen.llvm.clock import counter_of
from lucid.codegen.llvm.target import Target

RUN, WORK, WAKE = "lucid_run", "lucid_work", "lucid_wake"
LINE = 128
FUNCTION, FRAME, DONE, BUSY, WORKERS, STOP, FIRST_WORKER = 8, 16, 128, 256, 264, 384, 512
ALONE, ALONE_NEXT, AWAKE = 272, 280, 296
PARKED, LOCK = 0, 8


def state_bytes(workers: int) -> int:
    """Size of the state."""
    return FIRST_WORKER + LINE * workers


def pool_text(target: Target) -> str:
    """IR of the pool.

    `lucid_run(pool, function, frame, chunks, wake, patience, time)` runs a region and returns when
    it is done; all of it in the calling thread where another region runs already. After `patience`
    rounds of waiting, and twice the time that it has worked, it offers its processor to others. In
    one thread the region would take about `time` microseconds. `lucid_work(pool, number, spins)` is
    the life of a worker, `lucid_wake(pool)` wakes the parked ones.
    """
    linux = "linux" in target.triple
    arm = target.triple.startswith(("aarch64", "arm64"))
    hint = "llvm.aarch64.hint(i32 1)" if arm else "llvm.x86.sse2.pause()"
    declared = "llvm.aarch64.hint(i32)" if arm else "llvm.x86.sse2.pause()"
    text = _TEXT.replace("PAUSE", f"call void @{hint}")
    text = (
        text.replace("CLOCK", counter_of(target))
        .replace("MOST_ALONE", str(costs.MOST_ALONE))
        .replace("LEAST_ALONE", str(costs.LEAST_ALONE))
    )
    place = _PLACE_ON_LINUX if linux else _NO_PLACE
    declared = f"declare void @{declared}\ndeclare i64 @{counter_of(target)}()"
    return f'target triple = "{target.triple}"\n{declared}\n{text}{place}'


_TEXT = """
declare i32 @PyThread_acquire_lock(ptr, i32)
declare void @PyThread_release_lock(ptr)
declare i32 @lucid_yield()

define internal void @claim(ptr %pool, i64 %one, i1 %back) nounwind {
entry:
  %pf = getelementptr i8, ptr %pool, i64 8
  %pr = getelementptr i8, ptr %pool, i64 16
  %pd = getelementptr i8, ptr %pool, i64 128
  br label %look
look:
  %seen = load atomic i64, ptr %pool monotonic, align 64
  %seen.n = lshr i64 %seen, 40
  %seen.b0 = lshr i64 %seen, 20
  %seen.b = and i64 %seen.b0, 1048575
  %seen.f = and i64 %seen, 1048575
  %seen.t = add i64 %seen.b, %seen.f
  %some = icmp ult i64 %seen.t, %seen.n
  br i1 %some, label %take, label %out
take:
  %old = atomicrmw add ptr %pool, i64 %one acq_rel, align 64
  %n = lshr i64 %old, 40
  %b0 = lshr i64 %old, 20
  %b = and i64 %b0, 1048575
  %f = and i64 %old, 1048575
  %t = add i64 %b, %f
  %mine = icmp ult i64 %t, %n
  br i1 %mine, label %work, label %out
work:
  %last = sub i64 %n, 1
  %from.back = sub i64 %last, %b
  %chunk = select i1 %back, i64 %from.back, i64 %f
  %function = load ptr, ptr %pf, align 8
  %frame = load ptr, ptr %pr, align 8
  call void %function(ptr %frame, i64 %chunk, i64 %chunk)
  %ignored = atomicrmw add ptr %pd, i64 1 release, align 64
  br label %look
out:
  ret void
}

define void @lucid_wake(ptr %pool) nounwind {
entry:
  %pw = getelementptr i8, ptr %pool, i64 264
  %n = load atomic i64, ptr %pw monotonic, align 8
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %next]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %look, label %out
look:
  %offset = mul i64 %i, 128
  %place = add i64 %offset, 512
  %pp = getelementptr i8, ptr %pool, i64 %place
  %parked = load atomic i64, ptr %pp seq_cst, align 8
  %is = icmp ne i64 %parked, 0
  br i1 %is, label %try, label %next
try:
  %swap = cmpxchg ptr %pp, i64 1, i64 0 seq_cst seq_cst
  %won = extractvalue {i64, i1} %swap, 1
  br i1 %won, label %release, label %next
release:
  call void @note_place(ptr %pool)
  %pl = getelementptr i8, ptr %pp, i64 8
  %lock = load ptr, ptr %pl, align 8
  call void @PyThread_release_lock(ptr %lock)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %head
out:
  ret void
}

define void @lucid_run(ptr %pool, ptr %function, ptr %frame, i64 %chunks, i64 %wake,
                       i64 %patience, i64 %time) nounwind {
entry:
  %pb = getelementptr i8, ptr %pool, i64 256
  %pw = getelementptr i8, ptr %pool, i64 264
  %pf = getelementptr i8, ptr %pool, i64 8
  %pr = getelementptr i8, ptr %pool, i64 16
  %pd = getelementptr i8, ptr %pool, i64 128
  %workers = load atomic i64, ptr %pw monotonic, align 8
  %ph = getelementptr i8, ptr %pool, i64 272
  %pn = getelementptr i8, ptr %pool, i64 280
  %alone = icmp eq i64 %workers, 0
  br i1 %alone, label %serial, label %enter
enter:
  %swap = cmpxchg ptr %pb, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {i64, i1} %swap, 1
  br i1 %mine, label %entered, label %serial
entered:
  %held = load i64, ptr %ph, align 8
  %is.held = icmp sgt i64 %held, 0
  br i1 %is.held, label %keep, label %publish
keep:
  %held1 = sub i64 %held, %time
  store i64 %held1, ptr %ph, align 8
  store atomic i64 0, ptr %pb release, align 8
  br label %serial
publish:
  store ptr %function, ptr %pf, align 8
  store ptr %frame, ptr %pr, align 8
  store atomic i64 0, ptr %pd monotonic, align 64
  %word = shl i64 %chunks, 40
  store atomic i64 %word, ptr %pool release, align 64
  %wanted = icmp ne i64 %wake, 0
  br i1 %wanted, label %rouse, label %join
rouse:
  fence seq_cst
  call void @lucid_wake(ptr %pool)
  br label %join
join:
  %begin = call i64 @CLOCK()
  call void @claim(ptr %pool, i64 1, i1 false)
  %end = call i64 @CLOCK()
  %worked = sub i64 %end, %begin
  %fair = shl i64 %worked, 1
  br label %wait
wait:
  %c = phi i64 [0, %join], [%c1, %spin], [%c, %offer]
  %stalled = phi i1 [false, %join], [%stalled, %spin], [true, %offer]
  %done = load atomic i64, ptr %pd acquire, align 64
  %all = icmp eq i64 %done, %chunks
  br i1 %all, label %leave, label %look
look:
  %far = icmp ugt i64 %c, %patience
  br i1 %far, label %late, label %spin
late:
  %now = call i64 @CLOCK()
  %waited = sub i64 %now, %end
  %unfair = icmp ugt i64 %waited, %fair
  br i1 %unfair, label %offer, label %spin
spin:
  PAUSE
  %c1 = add i64 %c, 1
  br label %wait
offer:
  %ignored = call i32 @lucid_yield()
  br label %wait
leave:
  %next = load i64, ptr %pn, align 8
  %held.new = select i1 %stalled, i64 %next, i64 0
  store i64 %held.new, ptr %ph, align 8
  %more.alone = shl i64 %next, 2
  %half = lshr i64 %time, 1
  %less.alone = sub i64 %next, %half
  %next1 = select i1 %stalled, i64 %more.alone, i64 %less.alone
  %high = icmp ugt i64 %next1, MOST_ALONE
  %next2 = select i1 %high, i64 MOST_ALONE, i64 %next1
  %low = icmp slt i64 %next2, LEAST_ALONE
  %next3 = select i1 %low, i64 LEAST_ALONE, i64 %next2
  store i64 %next3, ptr %pn, align 8
  store atomic i64 0, ptr %pb release, align 8
  ret void
serial:
  br label %head
head:
  %i = phi i64 [0, %serial], [%i1, %body]
  %more = icmp ult i64 %i, %chunks
  br i1 %more, label %body, label %out
body:
  call void %function(ptr %frame, i64 %i, i64 0)
  %i1 = add i64 %i, 1
  br label %head
out:
  ret void
}

define void @lucid_work(ptr %pool, i64 %number, i64 %spins) nounwind {
entry:
  %ps = getelementptr i8, ptr %pool, i64 384
  %offset = mul i64 %number, 128
  %place = add i64 %offset, 512
  %pp = getelementptr i8, ptr %pool, i64 %place
  %pl = getelementptr i8, ptr %pp, i64 8
  %lock = load ptr, ptr %pl, align 8
  %odd = and i64 %number, 1
  %back = icmp eq i64 %odd, 0
  %one = select i1 %back, i64 1048576, i64 1
  br label %top
top:
  %c = phi i64 [0, %entry], [%c1, %idle], [0, %work], [0, %unpark], [0, %block]
  %w = load atomic i64, ptr %pool monotonic, align 64
  %n = lshr i64 %w, 40
  %b0 = lshr i64 %w, 20
  %b = and i64 %b0, 1048575
  %f = and i64 %w, 1048575
  %t = add i64 %b, %f
  %some = icmp ult i64 %t, %n
  br i1 %some, label %work, label %check
work:
  call void @claim(ptr %pool, i64 %one, i1 %back)
  br label %top
check:
  %s = load atomic i64, ptr %ps monotonic, align 8
  %stop = icmp ne i64 %s, 0
  br i1 %stop, label %out, label %idle0
idle0:
  %far = icmp ugt i64 %c, %spins
  br i1 %far, label %park, label %idle
idle:
  PAUSE
  %c1 = add i64 %c, 1
  br label %top
park:
  store atomic i64 1, ptr %pp seq_cst, align 8
  fence seq_cst
  %w2 = load atomic i64, ptr %pool seq_cst, align 64
  %n2 = lshr i64 %w2, 40
  %c0 = lshr i64 %w2, 20
  %b2 = and i64 %c0, 1048575
  %f2 = and i64 %w2, 1048575
  %t2 = add i64 %b2, %f2
  %some2 = icmp ult i64 %t2, %n2
  %s2 = load atomic i64, ptr %ps seq_cst, align 8
  %stop2 = icmp ne i64 %s2, 0
  %up = or i1 %some2, %stop2
  br i1 %up, label %unpark, label %block
unpark:
  %swap = cmpxchg ptr %pp, i64 1, i64 0 seq_cst seq_cst
  %mine = extractvalue {i64, i1} %swap, 1
  br i1 %mine, label %top, label %block
block:
  %got = call i32 @PyThread_acquire_lock(ptr %lock, i32 1)
  call void @leave_callers_place(ptr %pool)
  br label %top
out:
  ret void
}
"""

_NO_PLACE = """
define internal void @note_place(ptr %pool) nounwind { ret void }
define internal void @leave_callers_place(ptr %pool) nounwind { ret void }
"""

_PLACE_ON_LINUX = """
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define internal void @note_place(ptr %pool) nounwind {
  %pc = getelementptr i8, ptr %pool, i64 288
  %cpu = call i32 @sched_getcpu()
  store atomic i32 %cpu, ptr %pc monotonic, align 8
  ret void
}

define internal void @leave_callers_place(ptr %pool) nounwind {
entry:
  %all = alloca [16 x i64], align 8
  %others = alloca [16 x i64], align 8
  %pc = getelementptr i8, ptr %pool, i64 288
  %callers = load atomic i32, ptr %pc monotonic, align 8
  %own = call i32 @sched_getcpu()
  %same = icmp eq i32 %own, %callers
  %known = icmp ult i32 %own, 1024
  %leaves = and i1 %same, %known
  br i1 %leaves, label %look, label %out
look:
  %failed = call i32 @sched_getaffinity(i32 0, i64 128, ptr %all)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %move, label %out
move:
  %set = load [16 x i64], ptr %all, align 8
  store [16 x i64] %set, ptr %others, align 8
  %word = lshr i32 %own, 6
  %place = getelementptr i64, ptr %others, i32 %word
  %bits = load i64, ptr %place, align 8
  %low = and i32 %own, 63
  %shift = zext i32 %low to i64
  %bit = shl i64 1, %shift
  %mask = xor i64 %bit, -1
  %left = and i64 %bits, %mask
  store i64 %left, ptr %place, align 8
  %r1 = call i32 @sched_setaffinity(i32 0, i64 128, ptr %others)
  %r2 = call i32 @sched_setaffinity(i32 0, i64 128, ptr %all)
  br label %out
out:
  ret void
}
"""
