// The shim's scheduler. One copy in each shared object of kernels; launches come in through shim_launch_<kernel>.
#include "side/side.cuh"
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#error "the shim switches fibers by x86-64 code"
#endif

namespace shim {
thread_local Run* run;

// Saves the callee's registers on the stack, stores the stack pointer and goes on with another.
extern "C" void strata_shim_switch(void** save, void* to);
asm(R"(
.text
.globl strata_shim_switch
.hidden strata_shim_switch
.type strata_shim_switch,@function
strata_shim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

static std::atomic<u32> sites{0};
u32 shared_site(u32 bytes) { return sites.fetch_add((bytes + 64 + 63) & ~63u); }  // 64 bytes between arrays

void fail(const char* what) {
    Run* r = run;
    r->error = what;
    void* unused;
    strata_shim_switch(&unused, r->main_stack);
    abort();
}
static void ready(u32 fiber) {
    Run& r = *run;
    r.ready[(r.ready_first + r.ready_count++) % r.count] = fiber;
}
static u32 take() {
    Run& r = *run;
    if (!r.ready_count) fail("deadlock: every live thread waits");
    r.ready_count--;
    if (r.order == 1) return r.ready[(r.ready_first + r.ready_count) % r.count];
    if (r.order == 2) {
        r.random = r.random * 6364136223846793005ull + 1442695040888963407ull;
        u32 pick = (u32)((r.random >> 33) % (r.ready_count + 1));
        u32 a = (r.ready_first + pick) % r.count, b = (r.ready_first + r.ready_count) % r.count, f = r.ready[a];
        r.ready[a] = r.ready[b];
        return f;
    }
    u32 f = r.ready[r.ready_first];
    r.ready_first = (r.ready_first + 1) % r.count;
    return f;
}
static void go_on() {
    Run& r = *run;
    u32 me = r.current, next = take();
    if (next == me) return;
    r.current = next;
    strata_shim_switch(&r.fibers[me].stack, r.fibers[next].stack);
}

void wait_wave(Wave& w, int what) {
    if (w.alive != 0xffffffffu) fail("a collective after some lanes of the wave have ended");
    u32 me = run->current;
    if (w.arrived == 0) w.what = what;
    else if (w.what != what) fail("lanes of one wave meet in different collectives (a divergent branch?)");
    w.waiting[w.arrived++] = me;
    if (w.arrived < 32) return go_on();
    w.arrived = 0;
    w.turn++;
    for (u32 i = 0; i < 31; i++) ready(w.waiting[i]);
}
// Releases a workgroup that waits at a barrier once all of its live threads do.
static void release_group(Group& g, u32 but) {
    if (!g.live || g.arrived != g.live) return;
    g.arrived = 0;
    g.turn++;
    for (u32 i = 0; i < run->threads; i++)
        if (g.first + i != but && !run->fibers[g.first + i].done) ready(g.first + i);
}
void wait_group() {
    Group& g = *self().group;
    u32 turn = g.turn;
    g.arrived++;
    release_group(g, run->current);
    if (g.turn == turn) go_on();
}
void arrive_cluster() {
    Run& r = *run;
    self().cluster_turn = r.cluster_turn;
    if (++r.cluster_arrived < r.count) return;
    r.cluster_arrived = 0;
    r.cluster_turn++;
    for (u32 i = 0; i < r.count; i++) {
        if (r.fibers[i].in_cluster_wait) ready(i);
        r.fibers[i].in_cluster_wait = false;
    }
}
void wait_cluster() {
    Fiber& f = self();
    if (f.cluster_turn != run->cluster_turn) return;
    f.in_cluster_wait = true;
    go_on();
}

struct Launch {
    u32 groups[3], threads, shared, cluster;
    int order;
    u64 seed;
    u32 workers;
};
typedef void (*Body)(const void* kernel, void** args);
static thread_local Body body;
static thread_local const void* body_kernel;
static thread_local void** body_args;

static void entry() {
    body(body_kernel, body_args);
    Run& r = *run;
    Fiber& f = self();
    Group& g = *f.group;
    if (f.copies) fail("a thread ended with async copies that nothing waited for");
    f.done = true;
    g.live--;
    r.live--;
    Wave& w = g.waves[f.thread >> 5];
    w.alive &= ~(1u << (f.thread & 31u));
    if (w.arrived) fail("a thread ended while its wave waits in a collective");
    release_group(g, ~0u);
    void* unused;
    if (!r.live) strata_shim_switch(&unused, r.main_stack);
    u32 next = take();
    r.current = next;
    strata_shim_switch(&unused, r.fibers[next].stack);
}

#if defined(SHIM_ASAN)
static const size_t stack_bytes = 1024 * 1024;  // frames grow by the space around each array
#else
static const size_t stack_bytes = 64 * 1024;
#endif

// Runs clusters `from`, `from + step`, ... of a launch.
static void work(const Launch& l, Body b, const void* kernel, void** args, u64 from, u64 step, std::atomic<bool>& stop, const char** error) {
    body = b;
    body_kernel = kernel;
    body_args = args;
    u32 cluster = l.cluster ? l.cluster : 1, count = l.threads * cluster;
    u32 waves = (l.threads + 31) / 32;
    u32 dynamic_at = (u32)((sites.load() + 64 + 1023) & ~63u) + 65536;  // sites first met in this launch (48 KiB at most) fit below
    size_t shared_bytes = dynamic_at + l.shared + 64;
    std::vector<Fiber> fibers(count);
    std::vector<Group> groups(cluster);
    std::vector<Wave> wave_store(waves * cluster);
    std::vector<u32> queue(count);
    std::vector<unsigned char> shared(shared_bytes * cluster + 64, 0xa5);
    unsigned char* base = (unsigned char*)(((uintptr_t)shared.data() + 63) & ~(uintptr_t)63);
    shared_bytes = shared_bytes & ~(size_t)63;
    SHIM_CLOSE(base, shared_bytes * cluster);
    for (u32 k = 0; k < cluster; k++) SHIM_OPEN(base + k * shared_bytes + dynamic_at, l.shared);
    char* stacks = (char*)mmap(nullptr, count * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) {
        *error = strdup("no memory for fiber stacks");
        return;
    }
    SHIM_OPEN(stacks, count * stack_bytes);  // an earlier mapping at this place may have left closed frames
    Run r{};
    r.fibers = fibers.data();
    r.threads = l.threads;
    r.count = count;
    r.ready = queue.data();
    r.groups = groups.data();
    r.cluster = cluster;
    r.order = l.order;
    r.random = l.seed;
    r.dynamic_at = dynamic_at;
    for (int i = 0; i < 3; i++) r.grid[i] = l.groups[i];
    run = &r;
    u64 total = (u64)l.groups[0] * l.groups[1] * l.groups[2] / cluster;
    for (u64 c = from; c < total && !stop.load(std::memory_order_relaxed); c += step) {
        r.live = count;
        r.ready_first = r.ready_count = 0;
        r.cluster_arrived = 0;
        for (u32 k = 0; k < cluster; k++) {
            u64 at = c * cluster + k;
            Group& g = groups[k];
            g = Group{{(u32)(at % l.groups[0]), (u32)(at / l.groups[0] % l.groups[1]), (u32)(at / l.groups[0] / l.groups[1])}, k, l.threads, 0, 0,
                      &wave_store[k * waves], base + k * shared_bytes, k * l.threads};
            for (u32 w = 0; w < waves; w++) {
                g.waves[w].arrived = g.waves[w].turn = 0;
                u32 lanes = l.threads - 32 * w;
                g.waves[w].alive = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1u;
            }
            for (u32 t = 0; t < l.threads; t++) {
                u32 i = k * l.threads + t;
                Fiber& f = fibers[i];
                f.group = &g;
                f.thread = t;
                f.done = f.in_cluster_wait = false;
                f.batches = f.copies = 0;
                uintptr_t* s = (uintptr_t*)(stacks + (size_t)(i + 1) * stack_bytes);
                *--s = 0;
                *--s = (uintptr_t)entry;
                for (int n = 0; n < 6; n++) *--s = 0;
                f.stack = s;
                ready(i);
            }
        }
        r.current = take();
        strata_shim_switch(&r.main_stack, fibers[r.current].stack);
        if (r.error) {
            static std::mutex lock;
            std::lock_guard<std::mutex> held(lock);
            static thread_local char text[256];
            const Group& g = *self().group;
            snprintf(text, sizeof text, "%s (workgroup %u,%u,%u thread %u)", r.error, g.id[0], g.id[1], g.id[2], self().thread);
            if (!*error) *error = strdup(text);
            stop = true;
        }
    }
    run = nullptr;
    SHIM_OPEN(base, shared_bytes * cluster);
    munmap(stacks, count * stack_bytes);
}

static const char* launch(const Launch& l, Body b, const void* kernel, void** args) {
    if (l.threads == 0 || l.threads > 1024) return strdup("a workgroup of 1..=1024 threads is possible");
    if (l.cluster > 1 && l.groups[0] % l.cluster) return strdup("the grid is no multiple of the cluster");
    std::atomic<bool> stop{false};
    const char* error = nullptr;
    u64 total = (u64)l.groups[0] * l.groups[1] * l.groups[2] / (l.cluster ? l.cluster : 1);
    u64 workers = l.workers < 1 ? 1 : l.workers;
    if (workers > total) workers = total;
    if (workers <= 1) {
        std::thread t([&] { work(l, b, kernel, args, 0, 1, stop, &error); });
        t.join();
        return error;
    }
    std::vector<std::thread> threads;
    for (u64 i = 0; i < workers; i++) threads.emplace_back([&, i] { work(l, b, kernel, args, i, workers, stop, &error); });
    for (auto& t : threads) t.join();
    return error;
}

// Letters of the registry for the types of a kernel's parameters.
template <class T> struct Letter;
template <class T> struct Letter<T*> { static constexpr char value = 'p'; };
template <> struct Letter<i32> { static constexpr char value = 'i'; };
template <> struct Letter<u32> { static constexpr char value = 'u'; };
template <> struct Letter<i64> { static constexpr char value = 'l'; };
template <> struct Letter<f32> { static constexpr char value = 'f'; };
template <class T> struct Plain { typedef T type; };
template <class T> struct Plain<T* __restrict> { typedef T* type; };

template <class... A> struct Call {
    template <size_t... n> static void go(void (*kernel)(A...), void** args, std::integer_sequence<size_t, n...>) {
        kernel(*(typename Plain<A>::type*)args[n]...);
    }
    static void enter(const void* kernel, void** args) { go((void (*)(A...))kernel, args, std::make_index_sequence<sizeof...(A)>()); }
    static bool matches(const char* letters) {
        const char mine[] = {Letter<typename Plain<A>::type>::value..., 0};
        return !strcmp(mine, letters);
    }
};
template <class... A> const char* start(void (*kernel)(A...), const Launch* l, void** args) {
    return launch(*l, Call<A...>::enter, (const void*)kernel, args);
}
template <class... A> bool matches(void (*)(A...), const char* letters) { return Call<A...>::matches(letters); }
}  // namespace shim

// Makes a kernel callable: `letters` are its argument types in the registry. Returns null or an error text to free.
#define SHIM_EXPORT(kernel, letters)                                                                     \
    extern "C" const char* shim_launch_##kernel(const shim::Launch* l, void** args) {                    \
        if (!shim::matches(&kernel, letters)) return strdup("the registry's argument types differ from the kernel's"); \
        return shim::start(&kernel, l, args);                                                            \
    }
