// Rival of `strata bench --op mat-vec`: ggml's own product of one activation row with ten of many experts (ggml_mul_mat_id), timed.
//
//   g++ -O2 -I GGML/include benches/ggml_mat_vec.cpp -o ggml_mat_vec libggml.a libggml-cpu.a libggml-base.a -fopenmp -lpthread -lm
//   ./ggml_mat_vec THREADS COLS ROWS TYPE...       e.g. 2 2560 640 q4_K iq3_s
//
// Weights are larger than the last cache (512 MiB of experts); every call takes ten experts that were not read for a while. Prints, for each
// type, gigabytes of weights a second: median, smallest and largest of 15 samples.
#include "ggml-cpu.h"
#include "ggml.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

static ggml_type type_of(const std::string& name) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const char* n = ggml_type_name((ggml_type)t);
        if (n && name == n) return (ggml_type)t;
    }
    fprintf(stderr, "ggml has no type %s\n", name.c_str());
    exit(1);
}

int main(int argc, char** argv) {
    if (argc < 5) {
        fprintf(stderr, "ggml_mat_vec THREADS COLS ROWS TYPE...\n");
        return 1;
    }
    const int threads = atoi(argv[1]);
    const int64_t cols = atoi(argv[2]), rows = atoi(argv[3]), used = 10;
    std::mt19937 rng(1);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    for (int a = 4; a < argc; a++) {
        const ggml_type type = type_of(argv[a]);
        const size_t expert = ggml_row_size(type, cols) * rows;
        const int64_t experts = std::max<int64_t>(used * 4, (int64_t)((512u << 20) / expert) / used * used);
        ggml_context* ctx = ggml_init({(size_t)experts * expert + (64u << 20), nullptr, false});
        ggml_tensor* w = ggml_new_tensor_3d(ctx, type, cols, rows, experts);
        // sixteen rows are quantised, and repeated: decoding takes as long whatever the values
        const int64_t some = 16;
        std::vector<float> x(cols * some), importance(cols, 1.0f);
        for (float& v : x) v = normal(rng);
        std::vector<char> q(ggml_row_size(type, cols) * some);
        ggml_quantize_chunk(type, x.data(), q.data(), 0, some, cols, importance.data());
        for (size_t at = 0; at + q.size() <= (size_t)experts * expert; at += q.size()) memcpy((char*)w->data + at, q.data(), q.size());
        ggml_tensor* b = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, cols, 1, 1);
        for (int64_t i = 0; i < cols; i++) ((float*)b->data)[i] = normal(rng);
        ggml_tensor* ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, used, 1);
        ggml_cgraph* graph = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, ggml_mul_mat_id(ctx, w, b, ids));
        ggml_threadpool_params tpp = ggml_threadpool_params_default(threads);
        ggml_threadpool* pool = ggml_threadpool_new(&tpp);
        ggml_cplan plan = ggml_graph_plan(graph, threads, pool);
        std::vector<uint8_t> work(plan.work_size);
        plan.work_data = work.data();
        int64_t next = 0;
        auto call = [&] {
            // a stride that is no neighbour's: experts of a token are spread over the stack
            for (int64_t k = 0; k < used; k++) ((int32_t*)ids->data)[k] = (int32_t)((next + k * (experts / used)) % experts);
            next = (next + 1) % experts;
            ggml_graph_compute(graph, &plan);
        };
        for (int i = 0; i < 10; i++) call();
        std::vector<double> rates;
        for (int s = 0; s < 15; s++) {
            const int calls = std::max(4, (int)((48u << 20) / (expert * used)));
            const auto start = std::chrono::steady_clock::now();
            for (int i = 0; i < calls; i++) call();
            const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            rates.push_back((double)calls * used * expert / t / 1e9);
        }
        std::sort(rates.begin(), rates.end());
        printf("%-8s %lld x %lld: %6.2f GB/s (%.2f to %.2f)\n", argv[a], (long long)rows, (long long)cols, rates[7], rates[0], rates[14]);
        fflush(stdout);
        ggml_threadpool_free(pool);
        ggml_free(ctx);
    }
}
